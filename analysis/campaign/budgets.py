"""Budgets and settings of the analyzers of a report.

A budget counts samples, steps and restarts. It holds no seconds: results are the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Amount of work of the analyzers.

    Attributes:
        samples: test sequences for noise, certified radii, norm drift.
        attacked: test sequences that are attacked.
        curved: training sequences of the Hessian's batch.
        certified: test sequences that get a certified and an attacked radius of their own.
        gated: the same for LSTM and GRU, whose proofs cost five times as much; see ``Campaign.settings``.
        restarts: restarts of the attacks on these.
        draws: independent noises per level.
        levels: standard deviations of white noise and shares of salt and pepper, within inputs in [0, 1].
        epsilons_linf: radii of attacks in the largest change of an entry.
        epsilons_l2: radii of attacks in the Euclidean norm of the whole sequence's change.
        steps: steps of each run of APGD, where every sequence has one class, else of PGD.
        starts: starts of APGD for each sequence at each radius.
        stretch: number of steps for hidden states, in multiples of the task's sequence length.
        iterations: Lanczos iterations for the Hessian's ends.
        probes: random vectors for the Hessian's trace and density.
        trajectories: test sequences along which Lyapunov exponents are taken.
        program_states: largest number of states of systems that a solver examines as well; see ``cross_check``.
        program_steps: most steps of that solver.
    """

    samples: int = 500
    attacked: int = 200
    curved: int = 256
    certified: int = 32
    gated: int = 8
    restarts: int = 1
    draws: int = 3
    levels: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
    epsilons_linf: tuple[float, ...] = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08)
    epsilons_l2: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
    steps: int = 10
    starts: int = 2
    stretch: int = 10
    iterations: int = 32
    probes: int = 4
    trajectories: int = 32
    program_states: int = 64
    program_steps: int = 180


BUDGETS = {
    "full": Budget(),
    "quick": Budget(
        samples=200,
        attacked=60,
        curved=64,
        certified=8,
        gated=3,
        restarts=0,
        draws=2,
        levels=(0.0, 0.1, 0.2, 0.4),
        epsilons_linf=(0.0, 0.01, 0.04),
        epsilons_l2=(0.0, 0.2, 0.8),
        steps=5,
        stretch=10,
        iterations=20,
        probes=3,
        trajectories=8,
        program_states=32,
    ),
}


@dataclass(frozen=True)
class AnalysisSettings:
    """Settings of an analysis that are the same for all models.

    Attributes:
        budget: amount of work.
        seed: seed of everything random.
        input_box: bounds of all inputs, in place of the range of the data.
        overwrite: whether files of the names of results that no analysis made may be replaced.
        keep: take over steps of an earlier analysis of the same model, with the same seed and budget, whose files are
            as it left them, on the same data.
    """

    budget: Budget = BUDGETS["full"]
    seed: int = 0
    input_box: tuple[float, float] | None = None
    overwrite: bool = False
    keep: bool = False
