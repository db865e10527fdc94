package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/spf13/cobra"
)

func newPlaces(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	cmd := &cobra.Command{
		Use:   "places PLACE",
		Short: "Show what the look-ups of a place came to",
		Long: `Places asks an enricher for what it knows of a place, by its placeId: a line of JSON with each provider, the venue, the
score and the evidence.`,
		Example: `  expediter places ChIJH3w7GaZMHRURkD-WwKJy-8E | jq .lookups`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.place(cmd.Context(), args[0]) },
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *natsFlags) place(ctx context.Context, id string) error {
	question, err := json.Marshal(map[string]string{"placeId": id})
	if err != nil {
		return fmt.Errorf("the place: %w", err)
	}
	js, stop, err := f.connect(ctx, "expediter places")
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	answer, err := js.Conn().RequestWithContext(ctx, "enricher.v1.place", question)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no enricher answers: look whether one runs on this server", errUnavailable)
	case err != nil:
		return fmt.Errorf("%w: ask the enricher: %w", errUnavailable, err)
	case answer.Header.Get(micro.ErrorCodeHeader) != "":
		return fmt.Errorf("the enricher says: %s", answer.Header.Get(micro.ErrorHeader))
	}
	return f.say("%s\n", answer.Data)
}
