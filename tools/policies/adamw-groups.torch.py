POLICY = {}


def param_groups(model, weight_decay=0.1, table_decay=0.0):
    """Returns groups for torch.optim.AdamW."""
    decay = {"decay": weight_decay, "table": table_decay, "no_decay": 0.0}
    groups = {group: {"params": [], "weight_decay": value} for group, value in decay.items()}
    for name, parameter in model.named_parameters():
        groups[POLICY[name]["group"]]["params"].append(parameter)
    return [group for group in groups.values() if group["params"]]
