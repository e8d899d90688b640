import torch

POLICY = {}


# include matrices


def project(name, weight):
    """Returns the weight with every matrix at its radius."""
    return each_matrix(name, weight, lambda x, one: x * (one["radius"] / torch.linalg.matrix_norm(x, keepdim=True)))


def hyperball_step(name, weight, update, rate):
    """Returns the weight after a step along the update of another optimizer, whose matrices get the radius, too."""
    return project(name, weight - rate * project(name, update))
