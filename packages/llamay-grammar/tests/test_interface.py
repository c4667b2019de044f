"""The versions that engines check, and the public names."""

import llamay_grammar as lg


def test_the_interfaces_are_stated() -> None:
    assert lg.INTERFACE == {"token_constraint": (1, 0), "vocabulary": (1, 0)}
    assert all(hasattr(lg, name) for name in lg.__all__)
