#!/usr/bin/env python3
# recordings.py: makes train/ and test/, each with noise/ (a machine alone) and speech/ (synthetic voices, 10 dB below the
# machine), of two seconds at 16 kHz. The test has another voice, other sentences and other machines.
# usage: recordings.py DIR      needs NumPy and flite
import os
import subprocess
import sys
import tempfile
import wave

import numpy as np

RATE, LENGTH = 16000, 64 * 512 + 64
VOICES = {"train": ["slt", "rms", "awb"], "test": ["kal16"]}
TEXTS = {
    "train": ["The quick brown fox jumps over the lazy dog, and then it sleeps all day long in the warm afternoon sun.",
              "Please open the second window on the left side, because somebody has been smoking in the kitchen again.",
              "Three hundred and forty two people arrived at the railway station early on a cold Monday morning in March.",
              "Nobody could remember where the old bridge had been before the river changed its course two winters ago."],
    "test": ["She sells fresh bread and apples every Thursday at the small market near the harbour of the northern town.",
             "Turn right after the hospital, follow the road for seven miles, and ask for the keys at the yellow house."]}


def read(path):
    with wave.open(path) as file:
        assert file.getframerate() == RATE
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768


def write(path, samples):
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def say(voice, text):
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(["flite", "-voice", voice, "-t", text, "-o", file.name], check=True)
        return read(file.name)


# A drill: strokes at a rate that wanders, through a resonance of its housing.
def machine(random):
    t = np.arange(LENGTH) / RATE
    rate = random.uniform(60, 110) * (1 + .2 * np.sin(2 * np.pi * random.uniform(.2, 1) * t))
    strokes = np.diff(np.floor(np.cumsum(rate) / RATE), prepend=0) + random.normal(0, .05, LENGTH)
    center, width = random.uniform(1500, 2500), 300
    f = np.fft.rfftfreq(LENGTH, 1 / RATE)
    sound = np.fft.irfft(np.fft.rfft(strokes) / (center**2 - f**2 + 1j * width * f), LENGTH)
    return sound / np.sqrt(np.mean(sound**2))


def make(to, part, count, random):
    spoken = [say(voice, text) for voice in VOICES[part] for text in TEXTS[part]]
    for kind in "noise", "speech":
        os.makedirs(f"{to}/{part}/{kind}", exist_ok=True)
    for i in range(count):
        write(f"{to}/{part}/noise/{i:03}.wav", .2 * machine(random))
        voice = spoken[i % len(spoken)]
        begin = random.integers(4000, len(voice) - LENGTH - 8000)
        voice = voice[begin:begin + LENGTH]
        voice = voice / np.sqrt(np.mean(voice**2)) * 10**(-10 / 20)
        write(f"{to}/{part}/speech/{i:03}.wav", .2 * (machine(random) + voice))


if __name__ == "__main__":
    random = np.random.default_rng(1)
    make(sys.argv[1], "train", 60, random)
    make(sys.argv[1], "test", 20, random)
