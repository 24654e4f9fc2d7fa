"""Downloads files with huggingface_hub, and prints the path of their snapshot.

The test TestLayout of package hubfs runs it against its hub, if GORBIT_HF_PYTHON names a Python with
huggingface_hub, with -update to write layout.txt: the tree of the cache.
"""

import sys

from huggingface_hub import hf_hub_download


def main() -> None:
    """Download the files that the test asks for, or find them with HF_HUB_OFFLINE=1."""
    folders = set()
    for name in sys.argv[1:]:
        path = hf_hub_download("acme/encoder", name)
        folders.add(path.removesuffix("/" + name))
    print(*sorted(folders))


if __name__ == "__main__":
    main()
