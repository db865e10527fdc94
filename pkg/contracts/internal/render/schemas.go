// Package render makes the files that are generated from package contracts: JSON Schemas, the configuration of every stream, bucket
// and object bucket in the form that `nats stream add --config` takes, and the description of all messages, with the schemas in it.
package render

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/openapi"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// Types are the types that have a schema, by its name.
var Types = map[string]any{
	"dead-letter":     contracts.DeadLetter{},
	"enrich-job":      contracts.EnrichJob{},
	"enrich-request":  contracts.EnrichRequest{},
	"enrich-response": contracts.EnrichResponse{},
	"enrich-result":   contracts.EnrichResult{},
	"event":           Event{}, // with the members of Extra that the notifier reads
	"import-job":      contracts.ImportJob{},
	"import-status":   contracts.ImportStatus{},
	"notification":    contracts.Notification{},
	"provider-state":  contracts.ProviderState{},
	"recipient":       contracts.Recipient{},
	"restaurant":      Restaurant{},
	"result-patch":    contracts.ResultPatch{},
}

// Restaurant is a search result on its way through the enricher; members that are not listed are carried along.
type Restaurant struct {
	// PlaceID identifies the place.
	PlaceID string `json:"placeId" jsonschema:"minLength=1,maxLength=320"`
	// Name is the name of the place.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=1024,pattern=\\S"`
	// Address is the postal address in one line.
	Address *string `json:"address,omitempty" jsonschema:"maxLength=1024,nullable"`
	// CityText is the city as a person wrote it.
	CityText *string `json:"cityText,omitempty" jsonschema:"maxLength=1024,nullable"`
	// Location is where the place is.
	Location *contracts.Location `json:"location,omitempty" jsonschema:"nullable"`
	// Phone is a telephone number in any notation.
	Phone *string `json:"phone,omitempty" jsonschema:"maxLength=1024,nullable"`
	// Providers holds the state of each provider.
	Providers map[string]*map[string]any `json:"providers,omitempty" jsonschema:"nullable"`
	// Wolt is the deprecated place of providers.wolt.
	Wolt *map[string]any `json:"wolt,omitempty" jsonschema:"nullable"`
}

// Version is the version of all schemas.
const Version = "v1"

// URI returns the URI of a schema, which is its $id.
func URI(name string) string { return "https://schemas.expediter.io/" + Version + "/" + name + ".json" }

// Event is a fact that a source system publishes.
type Event struct {
	contracts.Event

	// RecipientType is the kind of recipient to notify, or BROADCAST. Defaults to the reader's rules.
	RecipientType contracts.RecipientType `json:"recipientType,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// RestaurantID is the restaurant that the event concerns, a string or a whole number as the source wrote it;
	// optional.
	RestaurantID json.RawMessage `json:"restaurant_id,omitempty" jsonschema:"oneof_type=string;integer;null"`
	// Recipients are the recipients to notify, for a source that knows them; otherwise the reader resolves them. At
	// most 10,000.
	Recipients []contracts.Recipient `json:"recipients,omitempty" jsonschema:"maxItems=10000"`
	// Route says how the Recipients are notified, in the words of the reader's rules and in their place; optional. A reader takes
	// it from subjects events./routed.> only.
	Route json.RawMessage `json:"route,omitempty"`
}

func schemas(root string) (map[string][]byte, error) {
	comments := openapi.NewComments(root)
	files := make(map[string][]byte)
	for name, value := range Types {
		reflector := &jsonschema.Reflector{
			AllowAdditionalProperties: true,
			Anonymous:                 true,
			LookupComment:             comments.Lookup,
			ExpandedStruct:            true,
			Mapper: func(t reflect.Type) *jsonschema.Schema {
				if t != reflect.TypeFor[contracts.Restaurant]() {
					return nil
				}
				return inlineRestaurant(comments)
			},
		}
		schema := reflector.Reflect(value)
		schema.ID = jsonschema.ID(URI(name))
		schema.Title = name
		refine(reflect.TypeOf(value).Name(), schema)
		for defined, definition := range schema.Definitions {
			refine(defined, definition)
		}
		if err := add(files, "pkg/contracts/schemas/"+name+"."+Version+".json", schema); err != nil {
			return nil, err
		}
	}
	return files, comments.Err()
}

// inlineRestaurant is the schema of a restaurant without references, so that each schema stands alone.
func inlineRestaurant(comments *openapi.Comments) *jsonschema.Schema {
	inline := &jsonschema.Reflector{
		AllowAdditionalProperties: true, Anonymous: true, LookupComment: comments.Lookup, DoNotReference: true, ExpandedStruct: true,
	}
	schema := inline.Reflect(Restaurant{})
	refine("Restaurant", schema)
	schema.Version = ""
	return schema
}

// refine adds the rules that tags cannot express.
func refine(typeName string, schema *jsonschema.Schema) {
	switch typeName {
	case "ProviderState", "EnrichResult":
		schema.If = constant("status", "FOUND")
		schema.Then = property("url", &jsonschema.Schema{Type: "string", Pattern: `^https?://`})
		schema.Then.Required = []string{"url"}
		schema.Else = property("url", &jsonschema.Schema{Type: "null"})
	case "Restaurant":
		providers, _ := schema.Properties.Get("providers")
		providers.OneOf[0].AdditionalProperties = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "object"}, {Type: "null"}}}
	case "DeadLetter":
		for _, name := range []string{"id", "reason", "stream", "subject"} {
			member, _ := schema.Properties.Get(name)
			member.MinLength = new(uint64(1))
		}
		sequence, _ := schema.Properties.Get("sequence")
		sequence.Minimum = "1"
		for _, name := range []string{"attempts", "deliveries"} {
			member, _ := schema.Properties.Get(name)
			member.Minimum = "0"
		}
	case "ImportStatus":
		schema.AllOf = []*jsonschema.Schema{together("READY", "recipe_id"), together("FAILED", "code")}
	case "ImportJob":
		url, _ := schema.Properties.Get("url")
		url.Pattern = `^(https?://|ni:///sha-256;[A-Za-z0-9_-]{43}(\?name=[^&#]+)?$)`
		id, _ := schema.Properties.Get("job_id")
		id.Pattern = `^[^/\\\x00-\x1f\x7f-\x9f]+$`
		id.Not = &jsonschema.Schema{Pattern: `\.\.`}
	case "ResultPatch":
		frame, _ := schema.Properties.Get("type")
		frame.Const = contracts.TypeResultPatch
	case "Patch":
		providers, _ := schema.Properties.Get("providers")
		providers.PropertyNames = &jsonschema.Schema{Pattern: `^[A-Za-z0-9_-]+$`}
		providers.MinProperties = new(uint64(1))
		providers.MaxProperties = new(uint64(16))
	case "EnrichRequest":
		providers, _ := schema.Properties.Get("providers")
		providers.Items = &jsonschema.Schema{Type: "string", Pattern: `^[A-Za-z0-9_-]{1,64}$`}
	case "Event":
		id, _ := schema.Properties.Get("restaurant_id")
		id.OneOf = nil
		id.AnyOf = []*jsonschema.Schema{{Type: "string", MinLength: new(uint64(1))}, {Type: "integer"}, {Type: "null"}}
	}
}

// together requires a member when the status has the value, and refuses it otherwise.
func together(status, member string) *jsonschema.Schema {
	return &jsonschema.Schema{
		If:   constant("status", status),
		Then: &jsonschema.Schema{Required: []string{member}},
		Else: &jsonschema.Schema{Not: &jsonschema.Schema{Required: []string{member}}},
	}
}

func constant(name, value string) *jsonschema.Schema {
	return property(name, &jsonschema.Schema{Const: value})
}

func property(name string, schema *jsonschema.Schema) *jsonschema.Schema {
	properties := jsonschema.NewProperties()
	properties.Set(name, schema)
	return &jsonschema.Schema{Properties: properties}
}

// Replicas is the number of servers that the rendered configurations ask for: production has three.
const Replicas = 3

// Files returns every generated file by its path from the root of the repository. root is the folder of the repository; the descriptions
// in the schemas are read from the sources there.
func Files(root string) (map[string][]byte, error) {
	files, err := schemas(root)
	if err != nil {
		return nil, err
	}
	assets, err := assets()
	if err != nil {
		return nil, err
	}
	messages, err := messages(files)
	if err == nil {
		err = add(files, asyncAPI, messages)
	}
	maps.Copy(files, assets)
	return files, err
}

// Folders returns the folders that hold generated files and nothing else.
func Folders() []string {
	return []string{"pkg/contracts/schemas", "deploy/nats/streams", "deploy/nats/buckets", "deploy/nats/objects"}
}

func assets() (map[string][]byte, error) {
	options := contracts.AssetOptions{Replicas: Replicas, Storage: jetstream.FileStorage}
	files := make(map[string][]byte)
	for _, config := range contracts.Assets(options) {
		folder, name := "streams", config.Name
		if kind, bucket, ok := strings.Cut(name, "_"); ok && (kind == "KV" || kind == "OBJ") {
			folder, name = map[string]string{"KV": "buckets", "OBJ": "objects"}[kind], bucket
		}
		if err := add(files, "deploy/nats/"+folder+"/"+name+".json", config); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func add(files map[string][]byte, name string, value any) (err error) {
	files[name], err = openapi.Marshal(value)
	return err
}
