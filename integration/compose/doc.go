// Package compose tests the three-member cluster of docker-compose.yml with a real Docker engine: its
// health, the death of a member, and the demo while a member dies. It holds tests only.
//
// # What the tests promise
//
//   - Nothing is shared: each test has a compose project, volumes and ports of its own, so runs beside each
//     other, or beside a cluster that somebody uses, do not meet.
//   - Nothing stays behind: containers, volumes and network are removed at the end, also after a failure and
//     after Ctrl-C, and a test whose cluster left something fails. A killed test process cannot clean up;
//     its projects are called etcdcoord-test-*.
//   - Nothing is pulled. The image is ETCD_IMAGE if that is set, else docker/build-image.sh builds it.
//
// # Without Docker
//
// Where there is no engine, or neither "docker compose" nor "docker-compose", no test runs: one line on
// stderr says so, and so does "[no tests to run]" beside the package in the summary of "go test ./...".
//
//	ETCDCOORD_REQUIRE_DOCKER=1      that is a failure then
//	ETCDCOORD_COMPOSE_MARKER=file   each test that passed adds its name to this file
package compose
