"""prototypes.py: the functions that headers declare, as the compiler reads them."""
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def including(header, folder):
    """Writes a source of this header alone. Returns it, and the options by which a compiler finds what it includes."""
    source = Path(folder, 'a.c')
    source.write_text(f'#include "{header}"\n')
    return source, [f'-I{ROOT}/{place}' for place in ('common', 'runtime', 'driver', 'compiler/ir')]


def prototypes(header, compiler='cc'):
    """Returns by name, for each function that the header's own file declares, its type with a gap for the name."""
    with tempfile.TemporaryDirectory() as folder:
        source, places = including(header, folder)
        listed = Path(folder, 'a.txt')
        subprocess.run([compiler, *places, '-fsyntax-only', '-aux-info', listed, source], check=True)
        text = listed.read_text()
    found = re.findall(rf'^/\* \S*/{header}:\d+:NC \*/ extern (.*?)(\w+) (\(.*\));$', text, re.M)
    return {name: (result.strip(), arguments) for result, name, arguments in found}


def kinds(result, arguments):
    """Returns how a call passes the result and each argument: pointer, int, int64, double or void."""
    words = re.split(r',\s*(?![^()]*\))', arguments[1:-1])
    return [kind(result)] + [kind(word) for word in words if word != 'void']


def kind(word):
    word = word.replace('const ', '').strip()
    return ('pointer' if '*' in word else 'int' if word.startswith('enum ') else
            {'int64_t': 'int64'}.get(word, word))
