"""One hierarchy: whatever a package of llamay_models raises by name is in `errors`, and is a LlamayError."""

import inspect

import llamay_kv
from llamay_models import chat, errors, gguf, tokenizer


def test_the_errors_of_every_package_are_here():
    for package in (chat, gguf, tokenizer):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value) and issubclass(value, Exception):
                assert getattr(errors, name) is value


def test_all_are_of_one_family_and_nothing_else_shows():
    assert dir(errors) == sorted(errors.__all__)
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.LlamayError)
        assert f"{name} " in errors.__doc__ or name == "LlamayError", f"{name} is missing in the tree"


def test_an_error_about_a_snapshot_is_one_of_llamay_kv_too():
    for name in ("SnapshotError", "IdentityMismatchError", "NotAllowedError"):
        assert issubclass(getattr(errors, name), getattr(llamay_kv, name))
    error = errors.NotAllowedError("not yours", path="a", part="owner", reason="b's")
    assert (str(error), error.path, error.part, error.reason) == ("not yours", "a", "owner", "b's")
    assert isinstance(error, PermissionError)
