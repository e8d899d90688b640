"""Writes bench/models/char_gpt.onnx: a small GPT over bytes with random weights, by PyTorch's exporter.

4 layers, 128 wide, 4 heads, blocks of 64 bytes, tied head. `batch` is symbolic.
usage: char_gpt.py OUT.onnx          (needs torch and onnx; nothing else in this project needs Python)
"""
import sys
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, BLOCK, WIDTH, HEADS, LAYERS = 256, 64, 128, 4, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = (batch, length, HEADS, WIDTH // HEADS)
        q, k, v = (t.view(heads).transpose(1, 2) for t in self.c_attn(x).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class CharGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(BLOCK, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight
        for p in self.parameters():  # as GPT-2 begins
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe.weight[: input_ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


torch.manual_seed(1)
torch.onnx.export(CharGPT(), torch.zeros(2, BLOCK, dtype=torch.long), sys.argv[1], dynamo=False,
                  opset_version=17, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                  input_names=['input_ids'], output_names=['logits'],
                  dynamic_axes={'input_ids': {0: 'batch'}, 'logits': {0: 'batch'}})
