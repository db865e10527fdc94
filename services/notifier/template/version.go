package template

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxFolder bounds how much of a folder is compared, in files: a larger folder was not meant for templates.
const maxFolder = 10_000

var errTooMany = errors.New("has too many files")

// Version names what a folder holds, mistakes included: the same names and contents, the same version. It reads every file,
// each up to MaxFile.
func Version(folder string) (string, error) {
	sum := sha256.New()
	files := 0
	root := os.DirFS(folder)
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return "", fmt.Errorf("templates: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		sum.Write(fmt.Appendf(nil, "%q\n", name))
		if !isFolder(root, entry) {
			continue // a mistake, whatever it holds
		}
		parts, err := fs.ReadDir(root, name)
		if err != nil {
			return "", fmt.Errorf("templates: %w", err)
		}
		if files += len(parts); files > maxFolder {
			return "", fmt.Errorf("templates: %s: %w: at most %d", folder, errTooMany, maxFolder)
		}
		for _, part := range parts {
			if err := add(sum, root, name+"/"+part.Name(), part.IsDir()); err != nil {
				return "", fmt.Errorf("templates: %w", err)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// add adds the name of a file and what it holds.
func add(sum hash.Hash, root fs.FS, name string, isDir bool) error {
	sum.Write(fmt.Appendf(nil, "%q\n", name))
	if isDir {
		return nil
	}
	file, err := root.Open(name)
	if err != nil {
		return err //nolint:wrapcheck // by the caller
	}
	defer file.Close() //nolint:errcheck // nothing was written
	n, err := io.Copy(sum, io.LimitReader(file, MaxFile+1))
	sum.Write(fmt.Appendf(nil, "\n%d\n", n))
	return err //nolint:wrapcheck // by the caller
}
