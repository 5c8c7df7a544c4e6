"""Spark's own JVM starts and plans faster for small inputs when it compiles less."""

from __future__ import annotations

import os

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
