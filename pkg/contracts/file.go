package contracts

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode"
)

// FileScheme is the scheme of the URLs of files.
const FileScheme = "ni"

// maxFileName bounds the name of a file in its URL, in bytes.
const maxFileName = 200

// fileAlgorithm is the only algorithm of RFC 6920 that is used here.
const fileAlgorithm = "/sha-256;"

// ErrFileURL is returned for a URL that is not one of a file.
var ErrFileURL = errors.New("contracts: not the URL of a file: want ni:///sha-256; and the digest in base64url")

// File is a parsed URL of a file.
type File struct {
	// Digest is the SHA-256 of the content.
	Digest [sha256.Size]byte
	// Name is the name of the file, without folders; may be empty.
	Name string
}

// NewFile names a file by its content. Only the last segment of the name is kept, without control characters, and at
// most 200 bytes of it.
func NewFile(name string, content []byte) File {
	return File{Digest: sha256.Sum256(content), Name: fileName(name)}
}

// fileName returns the part of a name that is kept. It is idempotent.
func fileName(name string) string {
	name = path.Base(strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, name)
	if len(name) > maxFileName { // the end has the type
		name = strings.ToValidUTF8(name[len(name)-maxFileName:], "")
	}
	if name == "." || name == ".." || name == "/" || name == "-" {
		return ""
	}
	return name
}

// URL returns the URL of the file by RFC 6920: ni:///sha-256;… and its name as a parameter. [ParseFileURL] reads it.
func (f File) URL() string {
	text := FileScheme + "://" + fileAlgorithm + base64.RawURLEncoding.EncodeToString(f.Digest[:])
	if f.Name != "" {
		text += "?name=" + url.QueryEscape(f.Name)
	}
	return text
}

// ParseFileURL reads the URL of a file. The error wraps ErrFileURL. Only the spelling of [File.URL] is valid.
func ParseFileURL(raw string) (File, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return File{}, fmt.Errorf("%w: %w", ErrFileURL, err)
	}
	text, _ := strings.CutPrefix(u.Path, fileAlgorithm)
	digest, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(digest) != sha256.Size {
		return File{}, ErrFileURL
	}
	f := File{Digest: [sha256.Size]byte(digest), Name: u.Query().Get("name")}
	if f.URL() != raw || fileName(f.Name) != f.Name {
		return File{}, ErrFileURL
	}
	return f, nil
}
