package integration_test

// childEnv names what a child process of the test binary does instead of running tests.
const childEnv = "ETCDCOORD_TEST_CHILD"

var children = map[string]func() int{}
