#!/usr/bin/env python3
# score.py: how well models tell speech/ from noise/ in ONNX Runtime, frame by frame.
# usage: score.py DIR MODEL...      needs NumPy and onnxruntime
import glob
import sys
import wave

import numpy as np
import onnxruntime


def frames(path):
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype("f4") / 32768
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(samples, 576)[::512])


def probabilities(session, folder):
    zero = np.zeros((1, 1, 128), "f4")
    return np.concatenate([session.run(["speech_probs"], {"input": frames(path), "h": zero, "c": zero})[0]
                           for path in sorted(glob.glob(folder + "/*.wav"))])


# The probability that a frame of speech gets more than one of noise.
def area(speech, noise):
    all_frames = np.concatenate([speech, noise])
    rank = np.empty(len(all_frames))
    rank[all_frames.argsort(kind="stable")] = np.arange(1, len(all_frames) + 1)
    return (rank[:len(speech)].sum() - len(speech) * (len(speech) + 1) / 2) / len(speech) / len(noise)


for model in sys.argv[2:]:
    session = onnxruntime.InferenceSession(model)
    speech, noise = (probabilities(session, f"{sys.argv[1]}/{kind}") for kind in ("speech", "noise"))
    print(f"{model}: area under the curve {area(speech, noise):.3f}, speech missed {np.mean(speech < .5):.1%}, "
          f"noise taken for speech {np.mean(noise >= .5):.1%}")
