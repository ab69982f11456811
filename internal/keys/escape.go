package keys

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxNameBytes is the longest name (key, election, owner, replica id) before escaping.
const MaxNameBytes = 512

// ErrInvalid is what every refused name wraps; fencing.ErrInvalidKey is this very value.
var ErrInvalid = errors.New("invalid key")

// Check refuses what cannot be a name: empty, over MaxNameBytes, not UTF-8, or with a NUL byte.
// what says in the error which argument it was ("key", "owner", …).
func Check(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: %s is empty", ErrInvalid, what)
	case len(name) > MaxNameBytes:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrInvalid, what, len(name), MaxNameBytes)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: %s %q contains a NUL byte", ErrInvalid, what, name)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s %q is not valid UTF-8", ErrInvalid, what, name)
	}
	return nil
}

const upperHex = "0123456789ABCDEF"

// plain bytes stand for themselves in an escaped name. The slash and the percent sign must not
// be among them.
func plain(b byte) bool {
	switch {
	case 'A' <= b && b <= 'Z', 'a' <= b && b <= 'z', '0' <= b && b <= '9':
		return true
	}
	return b == '.' || b == '_' || b == ':' || b == '@' || b == '-'
}

// Escape percent-encodes every byte that is not plain.
func Escape(name string) string {
	n := 0
	for i := range len(name) {
		if !plain(name[i]) {
			n++
		}
	}
	if n == 0 {
		return name
	}
	out := make([]byte, 0, len(name)+2*n)
	for i := range len(name) {
		if b := name[i]; plain(b) {
			out = append(out, b)
		} else {
			out = append(out, '%', upperHex[b>>4], upperHex[b&15])
		}
	}
	return string(out)
}

// Unescape is the inverse of Escape. It refuses whatever Escape would not have written, so that
// two keys in etcd never stand for one name.
func Unescape(escaped string) (name string, ok bool) {
	out := make([]byte, 0, len(escaped))
	for i := 0; i < len(escaped); i++ {
		b := escaped[i]
		if plain(b) {
			out = append(out, b)
			continue
		}
		if b != '%' || i+2 >= len(escaped) {
			return "", false
		}
		hi, lo := strings.IndexByte(upperHex, escaped[i+1]), strings.IndexByte(upperHex, escaped[i+2])
		if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
			return "", false
		}
		out = append(out, byte(hi<<4|lo))
		i += 2
	}
	if name = string(out); Check("name", name) != nil {
		return "", false
	}
	return name, true
}
