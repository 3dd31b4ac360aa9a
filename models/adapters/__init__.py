"""Adapters from modules to subjects of claims, with cross-checks: ``torch.nn``, containers, state dicts, quantised ones."""
