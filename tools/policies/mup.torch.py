import torch

POLICY = {}


def param_groups(model, lr, weight_decay=0.0, optimizer="adam"):
    """Returns groups for torch.optim.AdamW, or for SGD with optimizer="sgd". Tuned at the base model, lr holds here."""
    return [
        {
            "params": [parameter],
            "lr": lr * POLICY[name][optimizer],
            "weight_decay": weight_decay * POLICY[name][optimizer + "_decay"],
        }
        for name, parameter in model.named_parameters()
    ]


@torch.no_grad()
def scale_init(model):
    """Scales initial values drawn with standard deviations that do not depend on the width, as at the base model.

    Layers whose constructor already divides by the root of the width must not be scaled: draw them anew first.
    """
    for name, parameter in model.named_parameters():
        parameter.mul_(POLICY[name]["init"])


def multiply_outputs(model):
    """Multiplies the input of every output layer, by a hook on the module that owns the weight."""
    modules = dict(model.named_modules())
    for name in POLICY:
        factor = POLICY[name]["output"]
        owner = modules.get(name.rpartition(".")[0])
        if factor != 1 and isinstance(owner, torch.nn.Linear):
            owner.register_forward_pre_hook(lambda module, x, factor=factor: (x[0] * factor, *x[1:]))
        elif factor != 1:
            raise ValueError(f"{name} makes an output outside of a Linear: multiply its input by {factor}")
