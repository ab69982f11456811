#!/usr/bin/env bash
# Builds the etcd image that docker-compose.yml names, from source, for places where none can be pulled:
# it needs a Docker engine, Go and a Go module proxy. Does nothing when the image is there and up to date.
#
#   docker/build-image.sh [--force]
set -euo pipefail

case "${1:-}" in
"") force=no ;;
--force) force=yes ;;
*)
	echo "usage: $0 [--force]" >&2
	exit 64
	;;
esac

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
module="$here/etcd-image"
# The caller's workspace and flags (a -modfile, say) are about another module than this one.
export GOWORK=off GOFLAGS=-buildvcs=false

arch="$(docker version --format '{{.Server.Arch}}')" # the engine's, which may not be this machine's
version="$(go -C "$module" list -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)"
image="etcdcoord/etcd:${version#v}"

# All that the image is made of; kept in a label, so that an image of yesterday's inputs is seen as such.
inputs="$({
	echo "$arch"
	go version
	cat "$here/build-image.sh" "$module/Dockerfile" "$module/go.mod" "$module/go.sum"
} | cksum)"
present="$(docker image inspect --format '{{index .Config.Labels "etcdcoord.inputs"}}' "$image" 2>/dev/null || true)"
if [[ $force == no && $present == "$inputs" ]]; then
	echo "$image is up to date"
	exit 0
fi

context="$(mktemp -d)"
trap 'rm -rf "$context"' EXIT
cp "$module/Dockerfile" "$context/"

# "go install go.etcd.io/etcd/server/v3@…" is refused (its go.mod has replace lines); from a module that
# requires it, it builds.
build() { # <package> <name of the binary>
	echo "building $2 ${version#v} for linux/$arch"
	CGO_ENABLED=0 GOOS=linux GOARCH="$arch" go -C "$module" build -trimpath -ldflags='-s -w' -o "$context/$2" "$1"
}
build go.etcd.io/etcd/server/v3 etcd
build go.etcd.io/etcd/etcdctl/v3 etcdctl

docker build --quiet --tag "$image" --label "etcdcoord.inputs=$inputs" "$context"
echo "$image is built"
