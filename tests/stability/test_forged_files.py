"""Forged files: whatever a file holds, the checker answers; nothing goes unread; no claim changes and stays valid."""

from __future__ import annotations

import base64
import copy
import json
import random
import re

import numpy as np
import pytest
from specimens import specimens

from stability.certificate import Certificate
from stability.errors import FileFormatError
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.format.serialization import seal
from stability.storage.documents import read_document
from stability.storage.limits import DEPTH
from stability.verification import verify

QUICK = (  # kinds whose re-check takes milliseconds
    "contraction of flow", "contraction of euler", "contraction of uneven slopes", "contraction of gru box",
    "contraction of stack", "equilibrium", "box", "region", "nonexpansive", "gain of a map, final, 5", "slopes",
    "growing", "two equilibria", "orbits", "lowest layer", "periodic orbit", "unstable orbit", "unstable everywhere",
)  # fmt: skip


def document(name: str, tmp_path) -> dict:
    path = specimens()[name].certificate().save(tmp_path / "honest.json")
    return json.loads(path.read_text())


def written(tmp_path, forged: dict | str):
    path = tmp_path / "forged.json"
    if isinstance(forged, dict):
        forged.pop("digest", None)
        forged = seal(forged)
    path.write_text(forged, encoding="utf-8", errors="surrogatepass")
    return path


def sealed_text(text: str) -> str:
    """Any text sealed again by its own digest, whatever stands in it."""
    from stability.kernel.format.serialization import BLANK, _hash

    blank = re.sub(r'"digest": "[0-9a-f]{64}"', f'"digest": "{BLANK}"', text)
    return blank.replace(f'"digest": "{BLANK}"', f'"digest": "{_hash(blank)}"')


def test_the_way_of_forging_is_sound(tmp_path):
    honest = document("contraction of flow", tmp_path)
    assert verify(written(tmp_path, copy.deepcopy(honest))).valid
    text = (tmp_path / "forged.json").read_text()
    assert verify(written(tmp_path, sealed_text(text))).valid


@pytest.mark.parametrize("version", [1, 4, 0, "2", True, 2.0, None, [2], {"version": 2}])
def test_other_versions_are_refused_in_one_line(version, tmp_path):
    forged = {**document("contraction of flow", tmp_path), "version": version}
    answer = verify(written(tmp_path, forged))
    assert not answer.valid
    assert "stability certify MODEL -o FILE" in answer.reason
    assert "\n" not in answer.reason


SENTENCE_2 = (
    "For this system (its stored matrices, exact arithmetic) with every activation of slopes in [0, 1] under every "
    "input: the difference d of any two trajectories satisfies |d| <= 1.01 * exp(-1.2 t) |d(0)| at time t."
)
OPEN_2 = (
    "Whether trajectories of this network (tanh, its stored weights and bias, exact arithmetic) under every input "
    "approach each other exponentially is open."
)


def test_files_of_version_2_are_read_with_the_names_and_sentences_of_today(tmp_path):
    honest = document("contraction of flow", tmp_path)
    finding = {"holds": True, "margin": 1.0, "rate": None, "detail": ""}
    earlier = {**honest, "version": 2, "criterion": "kyp", "findings": [{"criterion": "circle", **finding}]}
    earlier["claim"] = {**honest["claim"], "statement": SENTENCE_2}
    assert verify(written(tmp_path, earlier)).valid
    found = Certificate.load(written(tmp_path, earlier))
    assert found.claim.statement == honest["claim"]["statement"]
    assert (found.criterion, found.findings[0].criterion) == ("circle", "small_gain")
    assert not verify(written(tmp_path, {**earlier, "version": 3})).valid
    for word in ("any two", "every activation of slopes in [0, 1]", "system (its"):
        forged = {**earlier["claim"], "statement": SENTENCE_2.replace(word, f"all {word}")}
        changed = word != "system (its"  # the description of the subject is not compared
        assert verify(written(tmp_path, {**earlier, "claim": forged})).valid != changed


def test_an_open_claim_of_version_2_is_read_with_the_sentence_of_today(tmp_path):
    honest = document("equilibrium", tmp_path)
    further = {
        **honest["claims"][0],
        "statement": "For this network (tanh, its stored weights and bias, exact arithmetic): for every constant input "
        "there is exactly one equilibrium, and it attracts every trajectory.",
    }
    earlier = {**honest, "version": 2, "claims": [further], "claim": {**honest["claim"], "statement": OPEN_2}}
    found = Certificate.load(written(tmp_path, earlier))
    assert [c.statement for c in (found.claim, *found.claims)] == [
        c["statement"] for c in (honest["claim"], *honest["claims"])
    ]
    forged = {**further, "statement": further["statement"].replace("exactly one", "no")}
    assert verify(written(tmp_path, {**earlier, "claims": [forged]})).checks[1].valid is False
    assert verify(written(tmp_path, earlier)).checks[1].valid


@pytest.mark.parametrize(
    "place", [(), ("claim",), ("claim", "proof"), ("subject",), ("claim", "proof", "data"), ("findings", 0)]
)
def test_unknown_missing_and_doubled_keys_are_refused(place, tmp_path):
    honest = document("contraction of flow", tmp_path)
    honest["findings"] = [{"criterion": "small_gain", "holds": True, "margin": 1.0, "rate": None, "detail": ""}]

    def at(root):
        for key in place:
            root = root[key]
        return root

    assert verify(written(tmp_path, copy.deepcopy(honest))).valid
    forged = copy.deepcopy(honest)
    at(forged)["note"] = "this subject is A = 0"
    assert not verify(written(tmp_path, forged)).valid
    for key in list(at(honest)):
        if key == "digest":
            continue
        forged = copy.deepcopy(honest)
        del at(forged)[key]
        assert not verify(written(tmp_path, forged)).valid, key
        text = (tmp_path / "honest.json").read_text() if not place else json.dumps(honest, indent=1)
        line = f'"{key}": '
        doubled = sealed_text(text.replace(line, f'"{key}": null, {line}', 1))
        answer = verify(written(tmp_path, doubled))
        assert not answer.valid
        assert "stands twice" in answer.reason


BAD = (
    None, True, False, 0, -1, 2**53 + 1, 10**39, 1.5, -0.5, 1e308, "", "x", [], [[]], {}, {"a": 1}, "certified",
    {"array": "", "shape": [0]}, {"array": "AAAAAAAA8D8=", "shape": [1]}, {"array": "AAAAAAAA8D8", "shape": [1]},
    {"type": "lure"}, {"type": "nothing"}, {"array": 1, "shape": [1]}, {"array": "", "shape": [-1]}, "\u202e",
    "\x1b[31m",
)  # fmt: skip


@pytest.mark.parametrize(
    "key", ["format", "subject", "claim", "criterion", "rate", "overshoot", "findings", "claims", "meta"]
)
def test_no_value_of_a_wrong_type_is_read_with_good_will(key, tmp_path):
    honest = document("contraction of flow", tmp_path)
    for bad in BAD:
        if (
            bad == honest[key]
            or (key == "meta" and isinstance(bad, dict))
            or (key in ("findings", "claims") and bad == [])
        ):
            continue
        if key == "criterion" and (bad is None or isinstance(bad, str)):
            continue
        for method in ("float", "exact"):
            answer = verify(written(tmp_path, {**honest, key: bad}), method=method)
            assert not answer.valid, (key, bad)
            assert answer.reason


@pytest.mark.parametrize(
    "number",
    ["1" + "0" * 400, "9" * 5000, "1e400", "-1e400", "NaN", "Infinity", "1" + "0" * 39, "0x10", "1_000", "01", "+1"],
)
def test_numbers_that_are_none_are_answered(number, tmp_path):
    honest = document("contraction of flow", tmp_path)
    honest["findings"] = [{"criterion": "small_gain", "holds": True, "margin": 12345.5, "rate": 12345.5, "detail": ""}]
    honest["meta"] = {"seed": 12345.5}
    for old in (json.dumps(honest["rate"]), json.dumps(honest["overshoot"]), "12345.5"):
        text = seal({k: v for k, v in honest.items() if k != "digest"})
        places = [m.start() for m in re.finditer(re.escape(old), text)]
        assert places
        for start in places:
            forged = sealed_text(text[:start] + number + text[start + len(old) :])
            for method in ("float", "exact"):
                answer = verify(written(tmp_path, forged), method=method)
                assert not answer.valid or (number == "1" + "0" * 39 and start > text.index('"meta"'))


@pytest.mark.parametrize("depth", [DEPTH + 1, 400, 700, 5000, 200_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_nesting_is_answered(depth, brackets, tmp_path):
    honest = document("contraction of flow", tmp_path)
    open_, close = ("[", "]") if brackets == "[]" else ('{"a":', "}")
    for key in ("meta", "subject", "rate"):
        text = json.dumps({**honest, key: "HERE"})
        forged = sealed_text(text.replace('"HERE"', open_ * depth + ("0" if brackets == "{}" else "") + close * depth))
        answer = verify(written(tmp_path, forged), method="exact")
        assert not answer.valid


def test_strings_that_are_no_text_and_files_that_are_no_files(tmp_path):
    honest = document("contraction of flow", tmp_path)
    text = json.dumps({**honest, "meta": {"name": "HERE"}}).replace("HERE", "\\ud800")
    assert "Unicode" in verify(written(tmp_path, sealed_text(text))).reason
    for content in (b"", b"\xff\xfe", b"{", b"[]", b"null", b"\x00" * 100, b'{"format": "stability-certificate"}'):
        (tmp_path / "odd.json").write_bytes(content)
        assert not verify(tmp_path / "odd.json").valid
    assert not verify(tmp_path).valid
    assert not verify(tmp_path / "missing.json").valid
    assert not verify("/dev/null").valid
    assert not verify("a\x00b").valid
    with pytest.raises(FileFormatError, match="regular file"):
        read_document("/dev/null")


def test_a_file_too_large_is_not_read(tmp_path):
    with open(tmp_path / "large.json", "wb") as handle:
        handle.truncate(3 * 1024**3)
    assert "at most" in verify(tmp_path / "large.json").reason


def test_opposite_verdicts_do_not_stand_in_one_file(tmp_path):
    flow, slopes = specimens()["contraction of flow"], specimens()["slopes"]
    main = flow.certificate()
    for further in (slopes.claim, flow.claim):
        open_main = Claim("contraction", undecided(flow.subject), Verdict.INCONCLUSIVE)
        certificate = Certificate(flow.subject, open_main, claims=(further,))
        assert "contraction" in verify(certificate.save(tmp_path / "c.json")).reason
        assert not verify(tmp_path / "c.json").valid
    both = Certificate(flow.subject, main.claim, main.criterion, main.rate, main.overshoot, claims=(slopes.claim,))
    assert not verify(both.save(tmp_path / "c.json")).valid
    refuted = Certificate(slopes.subject, slopes.claim, slopes.kind, claims=(flow.claim,))
    assert not verify(refuted.save(tmp_path / "c.json")).valid


@pytest.mark.parametrize("name", ["equilibrium"])
def test_the_sentence_and_evidence_of_an_open_claim_are_fixed(name, tmp_path):
    honest = document(name, tmp_path)

    def holds(document):
        checks = verify(written(tmp_path, document)).checks
        return bool(checks) and all(check.valid for check in checks)

    assert holds(copy.deepcopy(honest))
    assert not verify(tmp_path / "forged.json").valid  # a gate must not pass on an open claim
    for statement in (
        "This network is proved to be globally exponentially stable.",
        "",
        honest["claim"]["statement"] + " ",
    ):
        forged = copy.deepcopy(honest)
        forged["claim"]["statement"] = statement
        assert not holds(forged)
    for key, value in (("evidence", "proved"), ("evidence", "none"), ("verdict", "refuted"), ("verdict", "certified")):
        forged = copy.deepcopy(honest)
        if forged["claim"][key] == value:
            continue
        forged["claim"][key] = value
        assert not holds(forged), (key, value)


def test_the_answer_says_what_was_checked(tmp_path):
    specimen = specimens()["contraction of network"]
    answer = verify(specimen.certificate().save(tmp_path / "c.json"))
    assert answer.statement == specimen.claim.statement
    assert answer.rate == specimen.claim.value
    assert answer.overshoot == specimen.claim.proof.data["overshoot"]
    assert "2 states" in answer.subject
    assert re.search(r"sha256 [0-9a-f]{16}", answer.subject)
    other = specimens()["contraction of flow"].certificate().save(tmp_path / "d.json")
    assert verify(other).subject[-16:] != answer.subject[-16:]
    bent = verify(written(tmp_path, {**document("contraction of network", tmp_path), "rate": 9.0}))
    assert (bent.valid, bent.statement, bent.rate, bent.evidence) == (False, "", None, "none")


# ---- mutations


def nodes(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from nodes(value[key], (*path, key))
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield from nodes(item, (*path, k))


def look(root, path):
    for key in path:
        root = root[key]
    return root


def _number(value: float, rng: random.Random) -> float:
    kind = rng.randrange(8)
    if kind == 0:
        return -value
    if kind == 1:
        return value * (1.0 + rng.choice([-1, 1]) * 10.0 ** -rng.randrange(1, 17))
    if kind == 2:
        return float(np.nextafter(value, rng.choice([-np.inf, np.inf])))
    if kind == 3:
        return value * 10.0 ** rng.randrange(-20, 20)
    return rng.choice([0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, 5e-324, 2.0**53])


BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")


def mutated(honest: dict, rng: random.Random) -> dict:
    """One to three changes anywhere in the tree: dropped, doubled, swapped, nested, retyped, a number or bytes bent."""
    forged = copy.deepcopy(honest)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        paths = [p for p in nodes(forged) if p]
        path = rng.choice(paths)
        parent, key = look(forged, path[:-1]), path[-1]
        value, kind = parent[key], rng.randrange(9)
        if kind == 0:
            parent.pop(key)
        elif kind == 1:
            parent[key] = copy.deepcopy(rng.choice(BAD))
        elif kind == 2:
            parent[key] = copy.deepcopy(
                look(forged, rng.choice(paths[:1] + [p for p in paths if p[: len(path)] != path]))
            )
        elif kind == 3:
            parent[key] = rng.choice([[value], {"a": value}, str(value), [value, value]])
        elif kind == 4 and isinstance(parent, dict):
            parent[rng.choice(["note", "A", "rate", "P", "type", "proof", str(key) + "_"])] = copy.deepcopy(value)
        elif isinstance(value, bool):
            parent[key] = not value
        elif isinstance(value, (int, float)):
            parent[key] = _number(float(value), rng) if rng.random() < 0.8 else int(value) + rng.choice([-1, 1])
        elif isinstance(value, str) and key == "array" and value:
            raw = bytearray(base64.b64decode(value, validate=False)) if BASE64.fullmatch(value) else bytearray()
            if len(raw) >= 8:
                at = 8 * rng.randrange(len(raw) // 8)
                bent = _number(float(np.frombuffer(bytes(raw[at : at + 8]), "<f8")[0]), rng)
                raw[at : at + 8] = np.array([bent], "<f8").tobytes()
                parent[key] = base64.b64encode(bytes(raw)).decode()
        elif isinstance(value, str) and value:
            at = rng.randrange(len(value))
            parent[key] = value[:at] + rng.choice(["", "0", "9", "Z", " ", "\u0430"]) + value[at + 1 :]
    return forged


def judge(honest: dict, forged: dict, path, counts: dict[str, int]) -> None:
    try:
        text = seal({k: v for k, v in forged.items() if k != "digest"})
    except (ValueError, TypeError):
        return
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    counts["files"] += 1
    for method in ("float", "exact") if counts["files"] % 4 == 0 else ("float",):
        answer = verify(path, method=method)  # an exception fails the test
        counts["valid"] += answer.valid
        if not answer.valid or forged["subject"] != honest["subject"]:  # another subject: another claim, proved anew
            continue
        said = [honest["claim"], *honest["claims"]]
        for claim in (forged["claim"], *forged["claims"]):
            same = [c for c in said if c["name"] == claim["name"] and c["statement"] == claim["statement"]]
            assert same, claim["statement"]
            assert (claim["verdict"], claim["evidence"]) == (same[0]["verdict"], same[0]["evidence"])
        assert answer.evidence == honest["claim"]["evidence"]


def _mutate(name: str, tmp_path, files: int) -> dict[str, int]:
    honest, rng, counts = document(name, tmp_path), random.Random(f"{name} 7"), {"files": 0, "valid": 0}
    while counts["files"] < files:
        judge(honest, mutated(honest, rng), tmp_path / "mutated.json", counts)
    return counts


@pytest.mark.parametrize("name", QUICK)
def test_mutated_files_are_answered_and_change_no_claim(name, tmp_path):
    counts = _mutate(name, tmp_path, 150)
    assert counts["valid"] < counts["files"] * 0.6


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", QUICK)
def test_a_hundred_thousand_mutated_files(name, tmp_path):
    counts = _mutate(name, tmp_path, 100_000 // len(QUICK) + 1)
    assert counts["valid"] < counts["files"] * 0.6
