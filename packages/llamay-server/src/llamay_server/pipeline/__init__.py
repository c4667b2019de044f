"""From a prompt to the events of its choices: sampling options, constraints, admission, prefill and decode."""
