"""Closed list of all kinds of proof, with the module that holds the theorem for each."""

from __future__ import annotations

from types import MappingProxyType

_KINDS = {
    "as_it_runs": "as_it_runs",
    "bounded": "ball box",
    "driven_bounds": "driven_bounds",
    "driven_lmi": "driven_lmi driven_equilibrium",
    "equilibria": "two_equilibria unstable_equilibrium unstable_everywhere",
    "flow_lmi": "flow_lmi flow_equilibrium flow_bounds",
    "gain_lmi": "gain_lmi",
    "gain_steps": "gain_steps",
    "gated_linear": "gate_extremes average_bound root_bound delta_bound series_bound weighted_bound "
    "average_gain series_gain expanding_unit accumulator periodic_growth",
    "gated_limits": "gated_equilibrium gated_bounds",
    "gated_orbits": "gated_orbits gated_unstable",
    "gated_runs": "as_it_runs_gated",
    "interval": "interval_jacobian interval_lmi",
    "linear": "destabilising_slopes unstable_linear",
    "local_ellipsoids": "local_ellipsoids",
    "local_linear": "local_linear",
    "local_planes": "local_planes",
    "local_zonotopes": "local_zonotopes",
    "multiplier_lmi": "multiplier_lmi attracting_equilibrium growth_lmi",
    "near_run": "run_lmi run_equilibrium run_bounds",
    "norm_gain": "norm_gain",
    "pairwise": "pair_norm pair_growth pair_isometry pair_linear pair_jump",
    "periodic_orbits": "periodic_orbits unstable_orbit",
    "regional_lmi": "regional_lmi attraction_lmi",
    "residual": "residual_gain residual_contraction",
    "runs_of_layers": "as_it_runs_blocks as_it_runs_pairs as_it_runs_steps as_it_runs_interval as_it_runs_lmi",
    "stack_contraction": "cascade cascade_equilibrium",
    "stack_driven": "stack_driven stack_driven_equilibrium stack_driven_bounds",
    "stack_bounds": "cascade_bounds",
    "stack_gain": "stack_gain",
    "stack_orbits": "stack_orbits stack_unstable",
    "stack_witness": "cascade_layer merged_stack",
}
PACKAGE = "stability.kernel.theorems"
KINDS = MappingProxyType({kind: f"{PACKAGE}.{file}" for file, kinds in _KINDS.items() for kind in kinds.split()})
"""Module of every kind of proof."""
