package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// recipesFlags are the flags of the commands that list recipes.
type recipesFlags struct {
	*serviceFlags

	limit int
	owner string
}

func newRecipes(g *globals) *cobra.Command {
	shared := &serviceFlags{globals: g}
	cmd := &cobra.Command{Use: "recipes"}
	shared.register(cmd.PersistentFlags(), "importer", defaultImporter)
	cmd.AddCommand(newRecipesGet(shared), recipesFlags{serviceFlags: shared}.lister("list"),
		recipesFlags{serviceFlags: shared}.lister("search WORD..."))
	return cmd
}

// lister is a command that lists recipes, with the words of its arguments when there are some.
func (f recipesFlags) lister(use string) *cobra.Command {
	cmd := f.listing(use, func(ctx context.Context, args []string, format string) error {
		wrong := refuse(f.limit < 1 || f.limit > kvstore.MaxList, "--limit %d: want 1 to %d", f.limit, kvstore.MaxList)
		if err := f.usage(f.check(), wrong); err != nil {
			return err
		}
		return f.list(ctx, strings.Join(args, " "), format)
	})
	cmd.Flags().IntVar(&f.limit, "limit", 100, fmt.Sprintf("most recipes to list, up to %d", kvstore.MaxList))
	cmd.Flags().StringVar(&f.owner, "owner", defaultOwner, "owner of the recipes")
	return cmd
}

func (f recipesFlags) list(ctx context.Context, words, format string) error {
	list, more, err := f.api.Recipes(ctx, kvstore.Query{Limit: f.limit, OwnerID: f.owner, Text: words})
	if err != nil {
		return adviseRecipes(err)
	}
	out := f.rows(format, "RECIPE", "TIME", "TITLE~", "SOURCE")
	for _, r := range list {
		out.Add(r, r.ID, r.CreatedAt, r.Title, sourceLabel(r.SourceRef))
	}
	if more {
		f.notef("Only %d are shown: see --limit.\n", f.limit)
	}
	return out.Close()
}

func newRecipesGet(shared *serviceFlags) *cobra.Command {
	return shared.listing("get RECIPE", func(ctx context.Context, args []string, format string) error {
		if err := shared.usage(shared.check()); err != nil {
			return err
		}
		stored, err := shared.api.Recipe(ctx, args[0])
		if err != nil {
			return adviseRecipes(err)
		}
		return shared.writeRecipe(stored, format)
	}, recipeFormats...)
}

// adviseRecipes adds advice to the error of an importer without recipes.
func adviseRecipes(err error) error {
	if errors.Is(err, api.ErrNoRoute) {
		return fmt.Errorf("%w: %w: there is no importer, or one that leaves its recipes with a Recipe Service: ask there", ErrNotFound, err)
	}
	return advise(err)
}

func newPlaces(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	cmd := action("places PLACE", func(ctx context.Context, args []string) error {
		return f.askService(ctx, contracts.ServiceEnricher, func(ctx context.Context, client *notify.Client) error {
			var lookups json.RawMessage
			if err := client.Ask(ctx, "place", map[string]string{"placeId": args[0]}, &lookups); err != nil {
				return err
			}
			return f.say("%s\n", lookups)
		})
	})
	f.register(cmd.Flags())
	return cmd
}
