#!/usr/bin/env bash
# Fetches the published jars of the real system by Maven coordinates into a cache folder (home.sh says where) and compiles
# our own Java tools beside them.  Idempotent: a second run does only what is missing; two runs at once are safe.
#
#   setup.sh            installs, prints the cache folder
#   setup.sh --check    installs nothing; exit 0 when everything is there, 4 with one line on standard error when not
#
# Exit 3: a tool is missing (the message says which, and what needs it).
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/home.sh"

need() { # need COMMAND WHY PACKAGE
  command -v "$1" >/dev/null && return
  echo "'$1' is missing ($2); install it, for example the Debian package $3" >&2
  exit 3
}

need java  "runs the real servers and our Java tools; version 17 or newer" openjdk-17-jre-headless
if [ "${1:-}" = --check ]; then
  if [ -f "$CACHE/lib/.complete-$VERSION" ] && [ -f "$CLASSES/.complete" ]; then echo "$CACHE"; exit 0; fi
  echo "the real system is not installed in $CACHE" >&2
  exit 4
fi
need javac "compiles our Java tools; a JRE alone is not enough" openjdk-17-jdk-headless
mkdir -p "$CACHE/conf"
exec 9>"$CACHE/.lock"
if command -v flock >/dev/null; then flock 9; fi

if [ ! -f "$CACHE/lib/.complete-$VERSION" ]; then
  need mvn "resolves org.apache.rocketmq:rocketmq-*:$VERSION" maven
  echo "fetching the jars of RocketMQ $VERSION with Maven into $CACHE" >&2
  rm -rf "$CACHE/lib.part"
  mvn -q -B -Dstyle.color=never -f "$HERE/pom.xml" -Drocketmq.version="$VERSION" dependency:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$CACHE/lib.part" >&2 || {
    echo "Maven could not resolve version $VERSION (its message is above); is Maven Central reachable?" >&2
    exit 1
  }
  touch "$CACHE/lib.part/.complete-$VERSION"
  rm -rf "$CACHE/lib" && mv "$CACHE/lib.part" "$CACHE/lib"      # never a half-filled lib folder
fi

if [ ! -f "$CLASSES/.complete" ]; then
  rm -rf "$CLASSES.part" "$CLASSES" && mkdir -p "$CLASSES.part"
  javac -nowarn -Xlint:-deprecation -Xlint:none -proc:none -XDsuppressNotes -d "$CLASSES.part" -cp "$CACHE/lib/*" "$HERE"/src/*.java >&2
  touch "$CLASSES.part/.complete"
  mv "$CLASSES.part" "$CLASSES"
fi

make_archive() { # make_archive ROLE KEY=VALUE...: starts that server once and has its JVM write down its classes
  local role=$1 folder archive; archive=$(archive_of "$role")
  [ ! -f "$archive" ] || return 0
  folder=$(mktemp -d "$CACHE/archive-$role-XXXXXX")
  "$HERE/rocketmq" conf "$role" DIR="$folder" "${@:2}" >"$folder/conf"
  : >"$folder/out"
  ROCKETMQ_JAVA_QUICK=1 timeout -k 60 120 "$HERE/rocketmq" "$role" --conf "$folder/conf" --home "$folder" \
      --opts "-XX:ArchiveClassesAtExit=$folder/classes.jsa" >"$folder/out" 2>&1 &
  local server=$! tries=600
  while [ $((tries -= 1)) -gt 0 ] && kill -0 "$server" 2>/dev/null && ! grep -q "boot success" "$folder/out"; do sleep 0.1; done
  kill "$server" 2>/dev/null || true
  wait "$server" || true
  [ ! -f "$folder/classes.jsa" ] || mv "$folder/classes.jsa" "$archive"
  rm -rf "$folder"
}

# Starts of servers for tests (ROCKETMQ_JAVA_QUICK) cost three fifths with them; where they cannot be made nothing is missed.
port=$((20000 + RANDOM % 10000))
make_archive namesrv PORT=$port 9>&- &
make_archive broker PORT=$((port + 10)) HA_PORT=$((port + 12)) NAMESRV=127.0.0.1:1 9>&- &
wait
echo "$CACHE"
