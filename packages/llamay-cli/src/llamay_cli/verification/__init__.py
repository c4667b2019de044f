"""Checking that a model is exact on this machine: every way to the same logits must give the same bits.

A check observes the same tokens in two ways and compares the logits bit for bit. So that no check can pass
by accident, each one is also run with one token of one side changed: a check that finds no difference then fails
in any case.
"""

from .checks import CHECKS, Check, Result, verify
from .comparison import Difference, Observation, compare
from .subject import Precision, Setup, Subject

__all__ = [
    "CHECKS",
    "Check",
    "Difference",
    "Observation",
    "Precision",
    "Result",
    "Setup",
    "Subject",
    "compare",
    "verify",
]
