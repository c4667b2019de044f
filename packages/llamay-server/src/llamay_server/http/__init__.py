"""HTTP itself: connections, the gate that every request passes, errors, bodies and answers."""
