import torch

POLICY = {}


# include matrices


def muon_update(name, update, newton_schulz, factor="rms_factor"):
    """Returns the step of Muon for an update (a momentum): every matrix by newton_schulz, times its factor."""
    return each_matrix(name, update, lambda x, one: newton_schulz(x) * one[factor])
