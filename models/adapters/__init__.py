"""Adapters from modules to subjects of claims, cross-checked: ``torch.nn``, containers, state dicts, quantized ones."""
