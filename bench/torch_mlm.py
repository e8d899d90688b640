"""Trains the network of bench/models/bert_mlm.py by PyTorch's AdamW on masked bytes: a curve to draw beside ours.

15 % of the bytes are masked; of those 80 % become the mask, 10 % another byte, 10 % stay. Windows at random offsets.
usage: torch_mlm.py TRAIN.txt HELD_OUT.txt STEPS BATCH RATE SEED      prints lines as log.jsonl has them
"""
import json
import os
import sys
import torch
from torch.nn import functional as F
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'models'))
from bert_mlm import Bert, LENGTH, VOCABULARY


def masked(tokens, generator):
    u = torch.rand(tokens.shape, generator=generator)
    v = torch.rand(tokens.shape, generator=generator)
    other = torch.randint(0, VOCABULARY - 1, tokens.shape, generator=generator)
    chosen = u < 0.15
    ids = torch.where(chosen & (v < 0.8), VOCABULARY - 1, torch.where(chosen & (v >= 0.9), other, tokens))
    return ids, torch.where(chosen, tokens, -100)


def loss_of(net, tokens, generator):
    ids, labels = masked(tokens, generator)
    return F.cross_entropy(net(ids).flatten(0, 1), labels.flatten())


def main():
    train, held = (torch.tensor(list(open(p, 'rb').read())) for p in sys.argv[1:3])
    steps, batch, rate, seed = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
    torch.manual_seed(seed)
    torch.set_num_threads(2)
    g = torch.Generator().manual_seed(seed)
    net = Bert()
    opt = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.01, fused=True)
    for step in range(1, steps + 1):
        at = torch.randint(0, len(train) - LENGTH, (batch,), generator=g)
        loss = loss_of(net, torch.stack([train[i:i + LENGTH] for i in at]), g)
        for group in opt.param_groups:
            group['lr'] = rate * min(1, step / 100)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(json.dumps({'step': step, 'loss': round(loss.item(), 4)}))
        if step % 200 == 0:
            with torch.no_grad():
                windows = held[:len(held) // LENGTH * LENGTH].view(-1, LENGTH)[:256]
                loss = loss_of(net, windows, torch.Generator().manual_seed(0))
                print(json.dumps({'step': step, 'eval_loss': round(loss.item(), 4)}), flush=True)


main()
