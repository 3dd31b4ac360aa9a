"""Foreign modules as subjects: ``torch.nn``, containers, state dicts; each is cross-checked."""
