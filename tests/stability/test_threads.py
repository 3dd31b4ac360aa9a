"""Small matrices are factorised on one BLAS thread: where they are searched for, and where they are checked."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl

import stability.threads as module
from stability import LureSystem, certify
from stability.kernel.format.theorem_table import RULES
from stability.threads import threads_for
from stability.verification import verify


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def several():
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        if threads() == {1}:
            pytest.skip("this BLAS has one thread")
        yield


def test_small_matrices_get_one_thread_and_large_ones_all(several):
    before = threads()
    with threads_for(64):
        assert threads() == {1}
    with threads_for(512):
        assert threads() == before
    assert threads() == before


def test_a_proof_is_checked_on_one_thread(several, monkeypatch):
    certificate = certify(LureSystem.recurrent(-2.0 * np.eye(3), 0.5 * np.eye(3)), rate="any")
    seen = []
    rule = RULES[certificate.claim.proof.kind]
    monkeypatch.setattr(type(rule), "decide", lambda *_: (seen.append(threads()), (True, ""))[1])
    assert verify(certificate).valid
    assert seen
    assert all(found == {1} for found in seen)


def test_where_libraries_cannot_be_listed_threads_stay_as_they_are(monkeypatch):
    def broken():
        raise TypeError("'NoneType' object is not callable")

    module._controller.cache_clear()
    monkeypatch.setattr(module, "ThreadpoolController", broken)
    with threads_for(8):
        assert np.linalg.det(np.eye(2)) == 1.0
    module._controller.cache_clear()
