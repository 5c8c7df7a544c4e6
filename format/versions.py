"""Versions of clients and servers by number (MQVersion.java)."""


def version_text(ordinal: int) -> str:
    """Return the name of a version number: from 4.0.0 on two numbers for each of ten patches."""
    if ordinal < 212:
        return f"V3_{ordinal}"
    steps, is_release = divmod(ordinal - 212, 2)
    if steps >= 200:
        return "HIGHER_VERSION"
    name = f"V{4 + steps // 100}_{steps % 100 // 10}_{steps % 10}"
    return name if is_release else f"{name}_SNAPSHOT"
