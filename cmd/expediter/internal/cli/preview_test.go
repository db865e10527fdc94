package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	texts "github.com/expediter-io/expediter/services/notifier/template"
)

// The texts of the example are files, and on one page; a text that cannot be made is reported, and all others are shown.
func TestPreview(t *testing.T) {
	t.Parallel()
	const examples = "../../../../examples/"
	set := check.Must(texts.Load(examples+"templates", texts.Config{}))(t)
	data := check.Must(os.ReadFile(examples + "templates.json"))(t)
	cfg := preview{Templates: set}
	check.OK(t, json.Unmarshal(data, &cfg.Data))
	folder := t.TempDir()
	path, failed, err := cfg.writeTo(folder)
	check.OK(t, err)
	check.Same(t, "failures", len(failed), 0)
	read := func(path string) string {
		data := check.Must(os.ReadFile(path))(t)
		return string(data)
	}
	check.Says(t, read(filepath.Join(folder, "RESERVATION_REQUESTED", "he.email.html")), "\ufeff<!doctype", `dir="rtl"`, "ל־4 סועדים", "1,250.50", "www.\u200bevil.\u200bexample")
	check.Says(t, read(filepath.Join(folder, "RESERVATION_REQUESTED", "default.email.txt")), "A table for 4 guests, 2026-01-16 18:30 UTC\n\nCarla", "token=sample")
	check.Says(t, read(path), `src="RESERVATION_REQUESTED/he.email.html"`, "digest (built in)", "leads to https://cucina.example/reservations/r-17")
	cfg.Data = map[string]json.RawMessage{"reservations.digest": cfg.Data["reservations.digest"], "nobody": nil}
	cfg.Locales = []string{"it"}
	path, failed, err = cfg.writeTo(t.TempDir())
	check.OK(t, err)
	check.Same(t, "failures", len(failed), 4)
	check.Says(t, failed[0].Template+failed[1].Problem+read(path), "nobody", "RESERVATION_REQUESTED/default.subject:1:", "2 requests for tables")
}
