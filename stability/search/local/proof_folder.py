"""Folders of proofs about single inputs of one network.

``network.json`` holds the ``Classifier`` with its digest; ``sample-00017.json`` the claim about input 17 with its
proof, and the digest of the network that it is about. Neither solver nor torch is needed to check them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stability.certificate import claim_document, claim_from
from stability.display import Displayed
from stability.errors import FileFormatError, StabilityError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.serialization import decode, digest_of, encode, is_sealed, seal
from stability.kernel.systems.classifier import Classifier
from stability.storage.documents import read_document
from stability.storage.folder import Folder
from stability.storage.writing import write_text
from stability.verification import describe_subject, verify_claim

NETWORK_FILE = "network.json"
NETWORK, SAMPLE = "stability-local-network", "stability-local-certificate"
VERSION = 1
CLAIM = "local_robustness"
_SAMPLE_NAME = re.compile(r"sample-(\d{5,15})\.json")
_KEYS = {
    NETWORK: {"format", "version", "sha256", "network", "digest"},
    SAMPLE: {"format", "version", "network", "index", "claim", "digest"},
}


def sample_file(index: int) -> str:
    """Return the name of the file about one input.

    >>> sample_file(17)
    'sample-00017.json'
    """
    return f"sample-{index:05d}.json"


def write_network(folder: Folder, network: Classifier) -> str:
    """Write the network of the proofs in a folder; the file must be reserved.

    Args:
        folder: folder that the caller has claimed.
        network: the classifier.

    Returns:
        Digest of the network, which every proof repeats.

    Raises:
        FileFormatError: when the folder cannot be written to.
    """
    digest = digest_of(network)
    document = {"format": NETWORK, "version": VERSION, "sha256": digest, "network": encode(network)}
    write_text(folder.path / NETWORK_FILE, seal(document))
    return digest


def write_sample(folder: Folder, network: str, index: int, claim: Claim) -> Path:
    """Write the proof about one input; the file must be reserved.

    Args:
        folder: folder that the caller has claimed.
        network: digest of the network, as ``write_network`` gave it.
        index: index of the input in its data.
        claim: claim with its proof.

    Returns:
        The path.

    Raises:
        FileFormatError: when the folder cannot be written to.
    """
    document = {"format": SAMPLE, "version": VERSION, "network": network, "index": index}
    return write_text(folder.path / sample_file(index), seal({**document, "claim": claim_document(claim)}))


@dataclass(frozen=True)
class SampleCheck:
    """Outcome for one input.

    Attributes:
        file: its name in the folder.
        valid: whether the claim is proved.
        reason: reason of a refusal, or the proved result.
        index: index of the input in its data; ``None`` where the file could not be read.
        label: the class that is certified.
        norm: ``l2`` or ``linf``.
        radius: certified radius: no smaller perturbation changes the class.
        budget: ``total``, or ``step`` if the radius applies to every step.
        masked: number of entries of the input that may change, if not all.
        statement: the claim's sentence; empty unless valid.
        question: digest of the input, mask, norm, budget and bounds; empty unless valid.
    """

    file: str
    valid: bool
    reason: str
    index: int | None = None
    label: int | None = None
    norm: str | None = None
    radius: float | None = None
    statement: str = ""
    budget: str | None = None
    masked: int | None = None
    question: str = ""


@dataclass(frozen=True, repr=False)
class FolderVerification(Displayed):
    """Outcome for a folder of proofs.

    Attributes:
        valid: the network was read, there is a proof, and every proof holds.
        reason: reason of a refusal, or the proved result.
        network: network of the claims: kind, size, and the digest of its stored numbers; empty if unread.
        samples: one entry a file, in their order.
    """

    TABLE = "samples"

    valid: bool
    reason: str
    network: str = ""
    samples: tuple[SampleCheck, ...] = ()

    def __bool__(self) -> bool:
        return self.valid

    def facts(self) -> list[tuple[str, str]]:
        """Return the answer and the subject of the claims."""
        proved = sum(sample.valid for sample in self.samples)
        answer, count = ("", "valid" if self.valid else "INVALID"), ("proved", f"{proved} of {len(self.samples)}")
        return [answer, count, ("reason", self.reason), ("about", self.network)]


def is_proof_folder(path: Path) -> bool:
    """Return True if a folder holds, or claims to hold, proofs about single inputs.

    >>> is_proof_folder(Path("absent"))
    False
    """
    return path.is_dir() and os.path.lexists(path / NETWORK_FILE)


def read_network(path: Path) -> tuple[Classifier, str]:
    """Return the network of a folder and its digest, recomputed.

    Raises:
        FileFormatError: missing, damaged, changed after it was written, or no network of this format.
    """
    document = _document(path / NETWORK_FILE, NETWORK)
    network = decode(document["network"])
    if not isinstance(network, Classifier):
        raise FileFormatError(f"{path / NETWORK_FILE} must hold a classifier, got {type(network).__name__}")
    digest = digest_of(network)
    if document["sha256"] != digest:
        raise FileFormatError(f"{path / NETWORK_FILE} is damaged: its digest does not match the network in it")
    return network, digest


def read_sample(path: Path, network: str) -> tuple[int, Claim]:
    """Return the input's index and the claim of one file, not yet judged.

    Args:
        path: path of the file.
        network: digest of the network that it must be about.

    Raises:
        FileFormatError: missing, damaged, changed after it was written, about another network or another input.
    """
    document = _document(path, SAMPLE)
    index = document["index"]
    if type(index) is not int or sample_file(index) != path.name:
        raise FileFormatError(f"{path} holds a proof for input {str(index)[:20]}, which does not match its file name")
    if document["network"] != network:
        raise FileFormatError(f"{path} holds a proof about another network than {NETWORK_FILE}")
    return index, claim_from(document["claim"])


def _document(path: Path, kind: str) -> Mapping[str, Any]:
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileFormatError(f"{path} is no regular file")
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    document, text = read_document(path)
    if not isinstance(document, dict) or document.get("format") != kind:
        raise FileFormatError(f"{path} is not a {kind}")
    if type(document.get("version")) is not int or document["version"] != VERSION:
        raise FileFormatError(f"{path} has version {str(document.get('version'))[:20]}; this program reads {VERSION}")
    if set(document) != _KEYS[kind]:
        raise FileFormatError(f"{path} has other keys than a {kind}: expected {', '.join(sorted(_KEYS[kind]))}")
    if not is_sealed(text, document):
        raise FileFormatError(f"{path} was changed after it was written: its digest does not match")
    return document


def sample_names(path: Path) -> list[str]:
    """Return the names of the files about inputs in a folder, by index; raise an error for other ``sample-`` files.

    Raises:
        FileFormatError: the folder cannot be read, or holds a ``sample-`` file with another kind of name.
    """
    try:
        names = [name for name in os.listdir(path) if name.startswith("sample-")]
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    for name in names:
        match = _SAMPLE_NAME.fullmatch(name)
        if match is None or sample_file(int(match[1])) != name:
            raise FileFormatError(f"{path} holds {ascii(name)[1:-1][:60]}, which is not a proof file: remove it")
    return sorted(names, key=lambda name: int(name[7:-5]))


def budget_of(data: Mapping[str, Any]) -> str:
    """Return the budget of a proof: ``total``, or ``step`` if the radius is that of every step."""
    budget = data.get("budget")  # of a file that is not yet judged it may be anything
    return "step" if "tau" in data or (isinstance(budget, str) and budget == "step") else "total"


def verify_folder(path: str | Path, progress: Callable[[int, int], Any] | None = None) -> FolderVerification:
    """Prove every claim of a folder again, rounding errors included; a bad file is reported, never raised.

    Args:
        path: the folder.
        progress: called with the number of finished files and the number of all files.

    Returns:
        The outcome. One invalid file makes the folder invalid; all others are reported as well.
    """
    path = Path(path)
    try:
        network, digest = read_network(path)
        names = sample_names(path)
    except (StabilityError, TypeError, ValueError, LookupError, RecursionError) as error:
        return FolderVerification(False, str(error)[:300])
    checks: list[SampleCheck] = []
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names))
        checks.append(check_sample(path / name, network, digest))
    return FolderVerification(*_judged(checks), describe_subject(network), tuple(checks))


def _judged(checks: Iterable[SampleCheck]) -> tuple[bool, str]:
    checks = list(checks)
    bad = [check for check in checks if not check.valid]
    if bad:
        return False, f"{len(bad)} of {len(checks)} proofs do not hold; the first is {bad[0].file}: {bad[0].reason}"
    if not checks:
        return False, "the folder holds no proof"
    inputs = len({check.question for check in checks})
    copies = f" ({len(checks)} files; some are about the same input)" if inputs < len(checks) else ""
    return True, f"the claims about {inputs} input{'s' * (inputs != 1)} are proved{copies}"


def check_sample(path: Path, network: Classifier, digest: str) -> SampleCheck:
    """Return the outcome for one file of proof; a bad one is reported, never raised.

    Args:
        path: path of the file.
        network: network of the folder.
        digest: digest of the network.
    """
    try:
        index, claim = read_sample(path, digest)
    except (StabilityError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
        return SampleCheck(path.name, False, str(error)[:300])
    if claim.name != CLAIM or claim.verdict is not Verdict.CERTIFIED or not isinstance(claim.proof, Proof):
        return SampleCheck(
            path.name,
            False,
            f"expected a certified claim {CLAIM!r} with a proof, got {claim.name[:40]!r} ({claim.verdict})",
            index,
        )
    check = verify_claim(network, claim)
    data = claim.proof.data
    result: dict[str, Any] = {"index": index}
    if check.valid:  # what a rule refused may hold anything
        result |= {"label": data["label"], "norm": data["norm"], "radius": claim.value, "statement": claim.statement}
        result["budget"] = budget_of(data)
        result["masked"] = int(data["mask"].sum()) if "mask" in data else None
        mask = data["mask"].tobytes() if "mask" in data else b""
        parts = (data["x"].tobytes(), mask, f"{data['norm']} {result['budget']} {data.get('bounds')}".encode())
        result["question"] = hashlib.sha256(b"|".join(parts)).hexdigest()
    return SampleCheck(path.name, check.valid, check.reason, **result)
