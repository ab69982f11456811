package fencing

import "strconv"

// Token is a fence token: an etcd revision that rises with every grant of the same key. It is
// what a protected resource compares. 0 is never granted.
type Token int64

// String is the token in decimal.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }
