"""Lists what the programs are made of, as CycloneDX: modules of Go, and what comes with them."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import urllib.parse
import uuid
from collections.abc import Iterable
from typing import Any

FORMAT = "1.6"
Component = dict[str, Any]


class GoError(Exception):
    """The go command is missing or does not read a program; the message is a sentence."""


def modules(programs: Iterable[pathlib.Path]) -> list[Component]:
    """Returns the modules of programs, and the library of Go itself, by what is in the programs."""
    command = ["go", "version", "-m", "-json", *map(str, programs)]
    try:
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise GoError(
            "go is missing, which reads the modules of a program: put it on PATH"
        ) from None
    except subprocess.CalledProcessError as err:
        raise GoError(f"{' '.join(command)}: {err.stderr.strip()}; run make build") from err
    found: dict[tuple[str, str], Component] = {}
    decoder, at = json.JSONDecoder(), 0
    while at < len(said.rstrip()):  # an object for each program, one after the other
        info, at = decoder.raw_decode(said, at)
        at += len(said[at:]) - len(said[at:].lstrip())
        own = {"Path": "std", "Version": info["GoVersion"].removeprefix("go")}
        for module in (own, *info["Deps"]):
            module = module.get("Replace") or module
            name, version = module["Path"], module.get("Version", "")
            found[name, version] = component("golang", name, version)
    return [found[key] for key in sorted(found)]


def component(kind: str, name: str, version: str = "", **more: Any) -> Component:
    """Returns a library by its kind of package index, golang or pypi, name and version."""
    plain = name.lower() if kind == "golang" else re.sub(r"[-_.]+", "-", name).lower()
    at = f"@{urllib.parse.quote(version, safe='')}" if version else ""
    purl = f"pkg:{kind}/{urllib.parse.quote(plain)}{at}"
    versioned = {"version": version} if version else {}
    return {"type": "library", "bom-ref": purl, "name": name, **versioned, "purl": purl, **more}


def required(needed: str) -> Component:
    """Returns a library that pip installs, by a line of Requires-Dist."""
    name = re.match(r"[\w.-]+", needed)[0]
    wanted = [{"name": "python:requirement", "value": needed}]
    return component("pypi", name, scope="required", properties=wanted)


def bill(name: str, version: str, components: Iterable[Component]) -> bytes:
    """Returns the list of what a package is made of. Equal components give equal bytes."""
    parts: dict[str, Component] = {}
    for part in components:
        # Two requirements of one package are one component.
        same = parts.setdefault(part["bom-ref"], part)
        if same is not part and "properties" in part:
            same["properties"] = same["properties"] + part["properties"]
    about = {
        "bomFormat": "CycloneDX",
        "specVersion": FORMAT,
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": name,
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": list(parts.values()),
        "dependencies": [{"ref": name, "dependsOn": sorted(parts)}],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(about, sort_keys=True))
    return (json.dumps({**about, "serialNumber": f"urn:uuid:{number}"}, indent=1) + "\n").encode()
