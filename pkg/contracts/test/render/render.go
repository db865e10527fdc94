// Package render makes the files that are generated from package contracts: JSON Schemas, the configuration of every stream, bucket
// and object bucket in the form that `nats stream add --config` takes, and the descriptions of the APIs, which have the schemas.
package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Replicas is the number of servers that the rendered configurations ask for: production has three.
const Replicas = 3

// Files returns every generated file by its path from the root of the repository. root is where that is; the
// sources of the packages are read for the descriptions in the schemas.
func Files(root string) (map[string][]byte, error) {
	files, err := schemas(root)
	if err != nil {
		return nil, err
	}
	assets, err := assets()
	if err != nil {
		return nil, err
	}
	described, err := descriptions(root, files)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, assets)
	maps.Copy(files, described)
	return files, nil
}

// Folders are the folders that hold generated files and nothing else.
func Folders() []string {
	return []string{"pkg/contracts/schemas", "deploy/nats/streams", "deploy/nats/buckets", "deploy/nats/objects"}
}

// Write replaces the generated files below root.
func Write(root string) error {
	files, err := Files(root)
	if err != nil {
		return err
	}
	for _, folder := range Folders() {
		path := filepath.Join(root, folder)
		old, err := filepath.Glob(filepath.Join(path, "*.json"))
		if err != nil {
			return fmt.Errorf("render: %w", err)
		}
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				return fmt.Errorf("render: %w", err)
			}
		}
		if err := os.MkdirAll(path, 0o750); err != nil {
			return fmt.Errorf("render: %w", err)
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil { //nolint:gosec // Sources are for all to read.
			return fmt.Errorf("render: %w", err)
		}
	}
	return nil
}

func assets() (map[string][]byte, error) {
	options := contracts.AssetOptions{Replicas: Replicas, Storage: jetstream.FileStorage}
	files := make(map[string][]byte)
	for _, config := range contracts.Streams(options) {
		if err := add(files, "deploy/nats/streams/"+config.Name+".json", config); err != nil {
			return nil, err
		}
	}
	for _, config := range contracts.Buckets(options) {
		if err := add(files, "deploy/nats/buckets/"+config.Name[len("KV_"):]+".json", config); err != nil {
			return nil, err
		}
	}
	for _, config := range contracts.Objects(options) {
		if err := add(files, "deploy/nats/objects/"+config.Name[len("OBJ_"):]+".json", config); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func add(files map[string][]byte, name string, value any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("render: %s: %w", name, err)
	}
	files[name] = b.Bytes()
	return nil
}
