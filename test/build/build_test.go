package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake returns a build of a program that is a text, for two platforms.
func fake(t *testing.T) (build, []program) {
	t.Helper()
	b := build{dir: t.TempDir(), root: "../..", time: time.Unix(1e9, 0).UTC(), version: "v1.2.3", revision: "abc"}
	temp := t.TempDir()
	put := func(name, text string) string {
		check.OK(t, os.WriteFile(filepath.Join(temp, name), []byte(text), 0o600))
		return filepath.Join(temp, name)
	}
	sbom := put("sbom", "{}")
	return b, []program{
		{"notifier", "amd64", "linux", put("notifier", "for amd64"), sbom},
		{"notifier", "arm64", "linux", put("notifier.arm64", "for arm64"), sbom},
	}
}

// untar returns the files of an archive by name, with the headers.
func untar(t *testing.T, data []byte) (texts map[string]string, headers map[string]*tar.Header) {
	t.Helper()
	texts, headers = map[string]string{}, map[string]*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := r.Next()
		if err == io.EOF {
			return texts, headers
		}
		check.OK(t, err)
		text := check.Must(io.ReadAll(r))(t)
		texts[header.Name], headers[header.Name] = string(text), header
	}
}

func gunzip(t *testing.T, data string) []byte {
	t.Helper()
	z := check.Must(gzip.NewReader(strings.NewReader(data)))(t)
	return check.Must(io.ReadAll(z))(t)
}

// blob reads the blob that a descriptor names.
func blob(t *testing.T, files map[string]string, d v1.Descriptor, into any) {
	t.Helper()
	text, ok := files["blobs/sha256/"+d.Digest.Encoded()]
	check.Require(t, ok && digest.FromString(text) == d.Digest && int64(len(text)) == d.Size,
		"%s %s is not there, or is another: %d bytes", d.MediaType, d.Digest, len(text))
	check.OK(t, json.Unmarshal([]byte(text), into))
}

func TestImageIsOfAllPlatformsAndOfAUserWithoutRights(t *testing.T) {
	t.Parallel()
	b, built := fake(t)
	data := check.Must(b.image(built))(t)
	files, _ := untar(t, data)
	var root, index v1.Index
	check.OK(t, json.Unmarshal([]byte(files["index.json"]), &root))
	check.Equal(t, "v1.2.3", root.Manifests[0].Annotations[v1.AnnotationRefName])
	blob(t, files, root.Manifests[0], &index)
	check.Equal(t, 2, len(index.Manifests))
	for i, p := range built {
		var manifest v1.Manifest
		var config v1.Image
		blob(t, files, index.Manifests[i], &manifest)
		blob(t, files, manifest.Config, &config)
		for _, platform := range []v1.Platform{*index.Manifests[i].Platform, config.Platform} {
			check.Equal(t, "linux/"+p.arch, platform.OS+"/"+platform.Architecture)
		}
		check.Equal(t, "65532:65532", config.Config.User)
		check.Equal(t, "abcv1.2.3", config.Config.Labels[v1.AnnotationRevision]+manifest.Annotations[v1.AnnotationVersion])
		all, modes := map[string]string{}, map[string]int64{}
		for j, layer := range manifest.Layers {
			plain := gunzip(t, files["blobs/sha256/"+layer.Digest.Encoded()])
			check.Equal(t, config.RootFS.DiffIDs[j], digest.FromBytes(plain))
			texts, headers := untar(t, plain)
			for name, header := range headers {
				all[name], modes[name] = texts[name], header.Mode
				check.That(t, header.Uid == 0 && header.ModTime.Equal(b.time), "%s is of user %d, of %s", name, header.Uid, header.ModTime)
			}
		}
		check.Equal(t, "for "+p.arch, all[strings.TrimPrefix(config.Config.Entrypoint[0], "/")])
		check.Equal(t, int64(0o755), modes["usr/local/bin/notifier"])
		check.Equal(t, int64(0o1777), modes["tmp/"])
		first, _ := pem.Decode([]byte(all["etc/ssl/certs/ca-certificates.crt"]))
		check.That(t, first != nil, "the image has no certificates")
		check.Equal(t, "{}", all["usr/share/sbom/notifier.cdx.json"])
	}
}

func TestArchivesHoldTheProgramsAndTheLicence(t *testing.T) {
	t.Parallel()
	b, built := fake(t)
	check.OK(t, b.archive("linux/amd64", built[:1]))
	data := check.Must(os.ReadFile(filepath.Join(b.dir, "expediter-v1.2.3-linux-amd64.tar.gz")))(t)
	texts, headers := untar(t, gunzip(t, string(data)))
	const folder = "expediter-v1.2.3-linux-amd64/"
	check.Equal(t, "for amd64", texts[folder+"notifier"])
	check.Equal(t, int64(0o755), headers[folder+"notifier"].Mode)
	check.Says(t, texts[folder+"LICENSE"], "Apache License")

	built[0].os = "windows"
	check.OK(t, b.archive("windows/amd64", built[:1]))
	zipped := check.Must(zip.OpenReader(filepath.Join(b.dir, "expediter-v1.2.3-windows-amd64.zip")))(t)
	defer zipped.Close()
	r := check.Must(zipped.Open("expediter-v1.2.3-windows-amd64/notifier"))(t)
	text := check.Must(io.ReadAll(r))(t)
	check.Equal(t, "for amd64", string(text))

	sums := check.Must(b.sums())(t)
	want := digest.FromBytes(data).Encoded() + "  expediter-v1.2.3-linux-amd64.tar.gz\n"
	check.That(t, strings.HasPrefix(sums, want), "sums\n%s\nwant first %s", sums, want)
}

func TestFilesThatDifferAreNamed(t *testing.T) {
	t.Parallel()
	check.Equal(t, "", differing([]string{"1  a\n2  b\n"}))
	check.Equal(t, "", differing([]string{"1  a\n2  b\n", "1  a\n2  b\n"}))
	check.Equal(t, "2  b\n3  b\n4  c\n", differing([]string{"1  a\n2  b\n", "1  a\n3  b\n4  c\n"}))
}
