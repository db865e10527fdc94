package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// file is one of an archive or an image. A name that ends with a slash is a folder.
type file struct {
	name string
	mode int64
	data []byte
}

// archive writes the programs of a platform into an archive, with what belongs to them.
func (b *build) archive(platform string, built []program) error {
	name := "expediter-" + b.version + "-" + strings.ReplaceAll(platform, "/", "-")
	var files []file
	for _, p := range built {
		program, err := os.ReadFile(p.path)
		if err != nil {
			return err //nolint:wrapcheck // names the file
		}
		sbom, err := os.ReadFile(p.sbom)
		if err != nil {
			return err //nolint:wrapcheck // names the file
		}
		files = append(files,
			file{name + "/" + filepath.Base(p.path), 0o755, program}, file{name + "/" + p.name + ".cdx.json", 0o644, sbom})
	}
	for _, document := range []string{"LICENSE", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(b.root, document)) //nolint:gosec // of the repository
		if err != nil {
			return err //nolint:wrapcheck // names the file
		}
		files = append(files, file{name + "/" + document, 0o644, text})
	}
	if built[0].os == "windows" {
		data, err := zipped(files, b.time)
		return errors.Join(err, b.write(name+".zip", data))
	}
	data, _, err := tarred(files, b.time)
	return errors.Join(err, b.write(name+".tar.gz", data))
}

func (b *build) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(b.dir, name), data, 0o644) //nolint:gosec,wrapcheck // public; names the file
}

// tarred returns the files as a tar archive, compressed and as it is.
func tarred(files []file, at time.Time) (compressed, plain []byte, err error) {
	var archive, out bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(f.name, "/") {
			kind = tar.TypeDir
		}
		header := &tar.Header{Typeflag: kind, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	err = w.Close()
	z := gzip.NewWriter(&out)
	_, failed := z.Write(archive.Bytes())
	err = errors.Join(err, failed, z.Close())
	return out.Bytes(), archive.Bytes(), err
}

func zipped(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(os.FileMode(f.mode)) //nolint:gosec // of this file
		entry, err := w.CreateHeader(header)
		if err == nil {
			_, err = entry.Write(f.data)
		}
		if err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
