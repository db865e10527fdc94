// Package install tests the ways of installation: images, the compose file, and the chart.
package install

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// load reads the compose file of a folder, as `docker compose` does: with the schema and the variables of .env.
func load(t *testing.T, dir string) *types.Project {
	t.Helper()
	env := map[string]string{"SITE_USER": "1234:1234", "VERSION": "v0.0.0"}
	if data, err := os.ReadFile(filepath.Join(dir, ".env")); err == nil {
		if env, err = dotenv.Parse(strings.NewReader(string(data))); err != nil {
			t.Fatal(err)
		}
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: dir, ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml")}}, Environment: env,
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// No container of the compose file is root, writes to its root folder, or gains rights, and each that stays has a health check.
func TestComposeFileIsHardened(t *testing.T) {
	t.Parallel()
	project := load(t, "../../deploy/compose")
	if len(project.Services) != 16 {
		t.Errorf("%d services: want 16", len(project.Services))
	}
	for name, service := range project.Services {
		switch {
		case !service.ReadOnly || service.User != "1234:1234" || service.Privileged:
			t.Errorf("%s is not read-only, or of the user %q", name, service.User)
		case !slices.Equal(service.CapDrop, []string{"ALL"}) || !slices.Equal(service.SecurityOpt, []string{"no-new-privileges:true"}):
			t.Errorf("%s has rights: without %q, %q", name, service.CapDrop, service.SecurityOpt)
		case service.HealthCheck == nil && service.Restart != "on-failure":
			t.Errorf("%s has no health check", name)
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s listens on %s:%s, for other machines", name, port.HostIP, port.Published)
			}
		}
		for _, volume := range service.Volumes {
			if strings.HasPrefix(volume.Target, "/run/secrets") && !volume.ReadOnly {
				t.Errorf("%s may write its secrets", name)
			}
		}
	}
}

// The servers are of the version that the tests use.
func TestServersAreOfTheTestedVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../test/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`nats-server/v2 v(\S+)`).FindStringSubmatch(string(text))[1]
	if image := load(t, "../../deploy/compose").Services["n1"].Image; image != "nats:"+version+"-alpine" {
		t.Errorf("the image is %s: the tests use %s", image, version)
	}
}

// Alerts name jobs, so the site has those that the rules are tested with.
func TestSiteScrapesTheJobsOfTheAlerts(t *testing.T) {
	t.Parallel()
	job := regexp.MustCompile(`job_name: (\S+)`)
	var names [][]string
	for _, file := range []string{"../../deploy/prometheus/prometheus.yaml", "../../deploy/compose/prometheus.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, job.FindAllString(string(text), -1))
	}
	if len(names[0]) == 0 || !slices.Equal(names[0], names[1]) {
		t.Errorf("jobs %q: want %q", names[1], names[0])
	}
}
