#!/usr/bin/env bash
# Make sure there is a Java 17 or newer for Spark; install one where we may, else say exactly what to install.
set -euo pipefail

need=17

version_of() { "$1" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1; }

for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)"; do
  if [ -n "$java" ] && [ -x "$java" ]; then
    found=$(version_of "$java")
    if [ -n "$found" ] && [ "$found" -ge "$need" ]; then
      exit 0
    fi
    echo "found Java ${found:-of unknown version} at $java; Spark needs $need or newer"
  fi
done

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null && grep -qiE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release; then
  apt-get update -qq || true
  for version in 17 21; do
    if apt-cache show "openjdk-$version-jre-headless" >/dev/null 2>&1; then
      echo "installing openjdk-$version-jre-headless"
      if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "openjdk-$version-jre-headless" >/dev/null; then
        exit 0
      fi
    fi
  done
fi

cat >&2 <<TEXT
headgate needs Java $need or newer for Spark and found none. Install one of:
  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless
  Fedora, RHEL     sudo dnf install java-17-openjdk-headless
  macOS            brew install openjdk@17
then run the command again (set JAVA_HOME if java is not on the PATH).
TEXT
exit 1
