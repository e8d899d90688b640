import jax
import jax.numpy as jnp

POLICY = {}


# include tree


# include matrices


def muon_updates(updates, newton_schulz, factor="rms_factor"):
    """Returns the steps of Muon for a tree of updates (momenta): every matrix by newton_schulz, times its factor."""
    return jax.tree_util.tree_map_with_path(
        lambda path, x: each_matrix(policy_of(path), x, lambda y, one: newton_schulz(y) * one[factor]), updates
    )
