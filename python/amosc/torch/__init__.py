"""amosc.torch: optimizers for PyTorch that know the scale and role of every parameter, from the
module's graph.

    import amosc.torch
    optimizer = amosc.torch.Amos(model, (x,), batches=len(loader), labels=loader.batch_size)

Amos        the optimizer Amos, with the expected scale of every parameter
Muon        Muon for hidden matrices, piece by piece, and AdamW for the rest
Hyperball   matrices of fixed norms, and AdamW for the rest
groups      parameter groups by role, for AdamW and others; with the multipliers of muP
report      the eta report of a module, which these take as scales=

The module is exported on the CPU, without its weights; it and its gradients are left as they are.
"""

from ._amos import Amos
from ._export import ExportError
from ._groups import groups
from ._matrices import Hyperball, Muon, newton_schulz
from ._scales import ScaleWarning, report

__all__ = [
    "Amos",
    "Muon",
    "Hyperball",
    "groups",
    "report",
    "newton_schulz",
    "ExportError",
    "ScaleWarning",
]
