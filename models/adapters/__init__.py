"""Foreign modules as subjects: ``torch.nn``, containers, state dicts, quantised ones; each is cross-checked."""
