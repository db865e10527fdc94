package deploy_test

import (
	"strings"
	"testing"

	deploy "github.com/expediter-io/expediter/deploy/nats"
)

// TestDivideRepeatsWhatAPartitionNeeds names a line of each kind. That the permissions suffice is shown with services, by the command.
func TestDivideRepeatsWhatAPartitionNeeds(t *testing.T) {
	t.Parallel()

	text, err := deploy.Text("accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	if deploy.Divide(text, 1) != text {
		t.Error("one partition needs something")
	}

	got := deploy.Divide(text, 3)
	for _, want := range []string{
		"max_streams: 9\n", `"$JS.API.CONSUMER.MSG.NEXT.ENRICH_JOBS-2.*"`, `"ENRICH_JOBS-0.jobs.enrich.>"`, `"$KV.enrich-0.>"`, `"$KV.enrich-2.>"`,
		`"rp.enrich-1.>"`, `"$JS.ACK.*.*.NOTIFICATIONS-2.>"`, `"NOTIFICATIONS-1.notify.send.>"`, `"$KV.jobs.excused.NOTIFICATIONS-2.>"`,
		`subject: "dead.NOTIFICATIONS-1.>" } }`, `to: "$JS.ENRICHER.API.DIRECT.GET.KV_enrich-1" }`, `"ENRICH_JOBS-0.partitions-done.$barrier"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s", want)
		}
	}

	for _, wrong := range []string{"-3", "EVENTS-1", "notify.plan.>-", "NOTIFICATIONS-1.notify.plan", "NOTIFICATIONS-0"} {
		if strings.Contains(got, wrong) {
			t.Errorf("there is a %s", wrong)
		}
	}
}
