package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user of the images' programs.
const nonroot = "65532:65532"

var schema = specs.Versioned{SchemaVersion: 2}

// ports are the default ports of the programs.
var ports = map[string]string{"enricher": "8080/tcp", "importer": "8005/tcp", "notifier": "8006/tcp"}

var titles = map[string]string{
	"enricher":  "Attaches delivery links to places",
	"expediter": "Applies, inspects and operates Expediter",
	"importer":  "Makes recipes of pages, captions and texts",
	"notifier":  "Delivers events to people",
}

// image is a container image in the layout of the Open Container Initiative, as a tar archive.
type image struct {
	blobs map[digest.Digest][]byte
}

// images writes an image of each program, for all platforms of the program.
func (b *build) images(built []program) error {
	byName := map[string][]program{}
	for _, p := range built {
		byName[p.name] = append(byName[p.name], p)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		data, err := b.image(byName[name])
		if err != nil {
			return fmt.Errorf("the image of %s: %w", name, err)
		}
		if err := b.write(fmt.Sprintf("%s-%s-image.tar", name, b.version), data); err != nil {
			return err
		}
	}
	return nil
}

// image returns the image of a program: an index of one manifest for each platform.
func (b *build) image(built []program) ([]byte, error) {
	im := image{blobs: map[digest.Digest][]byte{}}
	index := v1.Index{Versioned: schema, MediaType: v1.MediaTypeImageIndex, Annotations: b.annotations(built[0].name)}
	for _, p := range built {
		manifest, err := b.manifest(im, p)
		if err != nil {
			return nil, err
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	all, err := im.put(v1.MediaTypeImageIndex, index)
	if err != nil {
		return nil, err
	}
	name := "expediter/" + built[0].name + ":" + b.version
	all.Annotations = map[string]string{v1.AnnotationRefName: b.version, "io.containerd.image.name": "docker.io/" + name}
	root := v1.Index{Versioned: schema, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{all}}
	text, err := json.Marshal(root)
	if err != nil {
		return nil, err //nolint:wrapcheck // of a type of this file
	}
	files := []file{{"blobs/", 0o755, nil}, {"blobs/sha256/", 0o755, nil}}
	for _, sum := range slices.Sorted(maps.Keys(im.blobs)) {
		files = append(files, file{"blobs/sha256/" + sum.Encoded(), 0o644, im.blobs[sum]})
	}
	layout := `{"imageLayoutVersion":"` + v1.ImageLayoutVersion + `"}`
	files = append(files, file{"index.json", 0o644, text}, file{v1.ImageLayoutFile, 0o644, []byte(layout)})
	_, plain, err := tarred(files, b.time)
	return plain, err
}

// put adds a document to the image.
func (im image) put(kind string, document any) (v1.Descriptor, error) {
	data, ok := document.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(document); err != nil {
			return v1.Descriptor{}, err //nolint:wrapcheck // of a type of this file
		}
	}
	sum := digest.FromBytes(data)
	im.blobs[sum] = data
	return v1.Descriptor{MediaType: kind, Digest: sum, Size: int64(len(data))}, nil
}

// manifest adds the parts of one platform: layers, configuration and manifest.
func (b *build) manifest(im image, p program) (v1.Descriptor, error) {
	platform := v1.Platform{OS: p.os, Architecture: p.arch}
	config := v1.Image{Created: &b.time, Platform: platform, RootFS: v1.RootFS{Type: "layers"}, Config: v1.ImageConfig{
		User: nonroot, WorkingDir: "/", Entrypoint: []string{"/usr/local/bin/" + p.name}, Labels: b.annotations(p.name),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}}
	if port := ports[p.name]; port != "" {
		config.Config.ExposedPorts = map[string]struct{}{port: {}}
	}
	manifest := v1.Manifest{Versioned: schema, MediaType: v1.MediaTypeImageManifest, Annotations: b.annotations(p.name)}
	program, err := os.ReadFile(p.path)
	if err != nil {
		return v1.Descriptor{}, err //nolint:wrapcheck // names the file
	}
	sbom, err := os.ReadFile(p.sbom)
	if err != nil {
		return v1.Descriptor{}, err //nolint:wrapcheck // names the file
	}
	for _, files := range [][]file{base(), {
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{"usr/local/bin/", 0o755, nil},
		{"usr/local/bin/" + p.name, 0o755, program},
		{"usr/share/", 0o755, nil},
		{"usr/share/sbom/", 0o755, nil},
		{"usr/share/sbom/" + p.name + ".cdx.json", 0o644, sbom},
	}} {
		compressed, plain, err := tarred(files, b.time)
		if err != nil {
			return v1.Descriptor{}, err
		}
		layer, err := im.put(v1.MediaTypeImageLayerGzip, compressed)
		if err != nil {
			return v1.Descriptor{}, err
		}
		manifest.Layers = append(manifest.Layers, layer)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(plain))
		config.History = append(config.History, v1.History{Created: &b.time, CreatedBy: "test/build"})
	}
	if manifest.Config, err = im.put(v1.MediaTypeImageConfig, config); err != nil {
		return v1.Descriptor{}, err
	}
	d, err := im.put(v1.MediaTypeImageManifest, manifest)
	d.Platform = &platform
	return d, err
}

// base returns the files beside the program: the user, the certificates of Mozilla's authorities, and a folder for temporary files.
func base() []file {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) //nolint:errcheck,gosec // into memory
	}
	return []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"tmp/", 0o1777, nil},
	}
}

// annotations returns the annotations with names of the Open Container Initiative.
func (b *build) annotations(name string) map[string]string {
	return map[string]string{
		v1.AnnotationCreated: b.time.Format("2006-01-02T15:04:05Z"), v1.AnnotationDescription: titles[name], v1.AnnotationLicenses: "Apache-2.0",
		v1.AnnotationRevision: b.revision, v1.AnnotationSource: source, v1.AnnotationTitle: name, v1.AnnotationVersion: b.version,
	}
}

const source = "https://github.com/expediter-io/expediter"

// file is a file of an archive or an image. A name that ends with a slash is that of a folder.
type file struct {
	name string
	mode int64
	data []byte
}

// archive writes the programs of a platform into an archive, with their SBOMs, the licence and the changelog.
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

// tarred returns the files as a tar archive, compressed and uncompressed.
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
