# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of a wheel, as CycloneDX 1.6 in JSON, in the wheel's folder `sboms`.

The bill lists the packages that the wheel requires, and the third-party code that is compiled into
the native core. Equal wheels have equal bills of materials: no field depends on the time or on
chance.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from email.parser import Parser
from typing import Any

__all__ = ["Part", "bill_of_materials"]

# Name, version, licence and purpose of each third-party library compiled into the core.
Part = tuple[str, str, str, str]


def _library(name: str, version: str | None, kind: str, **fields: Any) -> dict[str, Any]:
    """Return a component of the bill; `kind` is the type of the component's package URL."""
    purl = f"pkg:{kind}/{name.lower().replace('_', '-')}" + (f"@{version}" if version else "")
    known = {"version": version} if version else {}
    return {"type": "library", "bom-ref": purl, "name": name, **known, "purl": purl, **fields}


def _required(line: str) -> tuple[str, str, str]:
    """Split a line `Requires-Dist` into the package's name, the versions and the condition.

    Example:
        >>> _required('redis[hiredis]<9,>=5.1; extra == "redis"')
        ('redis', '<9,>=5.1', 'extra == "redis"')
    """
    requirement, _, condition = line.partition(";")
    end = next((i for i, each in enumerate(requirement) if each in "[<>=!~ ("), len(requirement))
    versions = requirement[end:].partition("]")[2] if requirement[end:].startswith("[") else None
    versions = requirement[end:] if versions is None else versions
    return requirement[:end].strip(), versions.strip(" ()"), condition.strip()


def bill_of_materials(
    metadata: str, binaries: Mapping[str, bytes], compiled_in: Sequence[Part]
) -> str:
    """Return the bill of materials of a wheel, as JSON text.

    Args:
        metadata: the wheel's METADATA.
        binaries: the wheel's compiled files.
        compiled_in: third-party code in the compiled files.
    """
    fields = Parser().parsestr(metadata)
    name, version = fields["Name"], fields["Version"]
    components: list[dict[str, Any]] = []
    needed: list[str] = []
    for line in fields.get_all("Requires-Dist", []):
        package, versions, condition = _required(line)
        properties = [
            {"name": f"mindspore_rec:{key}", "value": value}
            for key, value in (("versions", versions), ("condition", condition))
            if value
        ]
        scope = "optional" if "extra" in condition else "required"
        made = _library(package, None, "pypi", scope=scope, properties=properties)
        if made["bom-ref"] in needed:  # in several extras
            made["bom-ref"] += f"#{len(needed)}"
        components.append(made)
        needed.append(made["bom-ref"])
    for package, release, licence, what in compiled_in:
        made = _library(package, release, "generic", scope="required", description=what)
        made["licenses"] = [{"expression": licence}]
        components.append(made)
        needed.append(made["bom-ref"])
    for file, content in sorted(binaries.items()):
        digest = hashlib.sha256(content).hexdigest()
        hashes = [{"alg": "SHA-256", "content": digest}]
        components.append({"type": "file", "bom-ref": file, "name": file, "hashes": hashes})
    whole = _library(name, version, "pypi", licenses=[{"license": {"id": "Apache-2.0"}}])
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": whole},
        "components": components,
        "dependencies": [{"ref": whole["bom-ref"], "dependsOn": needed}],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill))
    return json.dumps({**bill, "serialNumber": f"urn:uuid:{number}"}, indent=2) + "\n"
