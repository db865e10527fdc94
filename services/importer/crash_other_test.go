//go:build !linux

package importer

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

func TestMain(m *testing.M) { crash.Main(m, 4, importers) }
