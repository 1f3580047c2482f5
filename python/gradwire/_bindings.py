"""Where the C libraries are, and the modules that their build makes from the headers: _structs, _constants and
_prototypes.

They are in gradwire/lib of an installed package. The environment variable GRADWIRE_LIBRARY_DIR names another folder of
libraries, for work on them; if it has no such modules, those of the package count.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_INSTALLED = Path(__file__).resolve().parent / "lib"
FOLDER = Path(os.environ.get("GRADWIRE_LIBRARY_DIR") or _INSTALLED)

if not any((folder / "_structs.py").exists() for folder in (FOLDER, _INSTALLED)):
    raise ImportError(f"gradwire: {FOLDER} holds no libraries that the build of the Python package has made")
sys.modules[__package__].__path__.extend([str(FOLDER), str(_INSTALLED)])
