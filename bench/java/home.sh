# Sourced by setup.sh and rocketmq: where the jars of the real system and our compiled Java tools are kept.
#   $ROCKETMQ_JAVA_HOME, if set; else $UNDERSTUDY_PEERS_HOME/rocketmq-java/VERSION, if that is set; else
#   ~/.cache/rocketmq-java/VERSION, if the jars are there already; else ~/.cache/understudy-peers/rocketmq-java/VERSION
VERSION=${ROCKETMQ_VERSION:-5.4.0}
if [ -n "${ROCKETMQ_JAVA_HOME:-}" ]; then CACHE=$ROCKETMQ_JAVA_HOME
elif [ -n "${UNDERSTUDY_PEERS_HOME:-}" ]; then CACHE=$UNDERSTUDY_PEERS_HOME/rocketmq-java/$VERSION
else
  CACHE=${HOME:?HOME or ROCKETMQ_JAVA_HOME must be set}/.cache/rocketmq-java/$VERSION
  [ -f "$CACHE/lib/.complete-$VERSION" ] || CACHE=$HOME/.cache/understudy-peers/rocketmq-java/$VERSION
fi
# Classes are kept by the hash of their sources: two checkouts can share a cache, also while one of them is compiling.
CLASSES=$CACHE/classes-$(cat "$HERE"/src/*.java | sha256sum | cut -c1-16)
# Classes of a server as this JVM has them in memory (setup.sh makes it): it reads them from there and not from jars.
archive_of() { echo "$CACHE/quick-$1-$(stat -Lc %Y "$(command -v java)" 2>/dev/null).jsa"; }
