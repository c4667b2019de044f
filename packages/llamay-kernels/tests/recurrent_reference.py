"""Convolutions and scans as docs/arithmetic.md defines them, in numpy, to the bit."""

import numpy as np
from exact import dot, fma


def conv_reference(x, weight, bias=None, carried=None):
    n, channels = x.shape
    taps = weight.shape[1]
    before = np.zeros((taps - 1, channels), np.float32) if carried is None else carried
    inputs = np.concatenate([before, x])
    out = np.zeros((n, channels), np.float32)
    if bias is not None:
        out[:] = bias  # the sum begins with the bias itself: +0 plus a bias of -0 would be +0
    for j in range(taps):
        out = fma(weight[:, j], inputs[j : j + n], out)
    return out, inputs[n:]


def scan_reference(r, w, k, v, a=None, b=None, state=None):
    s = np.zeros((v.shape[1], k.shape[1]), np.float32) if state is None else state.copy()
    out = np.empty_like(v)
    for t in range(len(r)):
        correction = None if a is None else dot(s, a[t])
        with np.errstate(all="ignore"):
            s = s * w[t]
        s = fma(v[t][:, None], k[t], s)
        if correction is not None:
            s = fma(correction[:, None], b[t], s)
        out[t] = dot(s, r[t])
    return out, s
