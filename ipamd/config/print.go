package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Source says where a setting's value came from.
type Source string

// Sources of a value.
const (
	FromDefault     Source = "default"
	FromEnvironment Source = "environment"
	FromSetting     Source = "derived" // from another setting
)

// Entry is one setting as it applies.
type Entry struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Source  Source `json:"source"`
	Unit    string `json:"unit,omitempty"`
	Note    string `json:"note,omitempty"`  // which setting it was derived from, or that it has no effect
	Error   string `json:"error,omitempty"` // why it cannot be used
}

// Report is every setting in the order of the README's table, then the incumbent's that were given, then what is wrong or
// worth a remark.
type Report struct {
	Settings []Entry  `json:"settings"`
	Notes    []string `json:"notes,omitempty"`
	Errors   []string `json:"errors,omitempty"`
}

// Explain reads an environment as Load does and says of every setting what applies and why. It is of use for a bad
// environment too: then Errors is not empty, and a daemon would not start.
func Explain(environment []string, keys KeyParser) Report {
	settings, err := Load(environment, keys)
	given := parse(environment)
	report := Report{Notes: settings.Notes}
	wrong := map[string]string{}
	if all := (*Error)(nil); errors.As(err, &all) {
		report.Notes = all.Notes
		for _, p := range all.Problems {
			report.Errors = append(report.Errors, p.String())
			wrong[p.Setting] = "want " + p.Accepts
		}
	}
	derived := map[string]Entry{}
	if err == nil {
		derived["POD_MTU"] = Entry{Value: fmt.Sprint(settings.PodMTU), Note: "AWS_VPC_ENI_MTU"}
		derived["VPC_CNI_HEALTH_SOCKET"] = Entry{Value: settings.HealthSocket, Note: "VPC_CNI_SOCKET"}
	}
	var s Settings
	for _, setting := range s.settings(nil) {
		e := Entry{Setting: setting.name, Value: given[setting.name], Source: FromEnvironment, Unit: setting.unit, Error: wrong[setting.name]}
		if from, ok := derived[setting.name]; ok && e.Value == "" {
			e.Value, e.Source, e.Note = from.Value, FromSetting, "from "+from.Note
		} else if e.Value == "" { // an empty value counts as not set
			e.Value, e.Source = setting.standard, FromDefault
		}
		report.Settings = append(report.Settings, e)
	}
	for _, f := range compatibility() {
		if value := given[f.name]; value != "" {
			report.Settings = append(report.Settings, Entry{
				Setting: f.name, Value: value, Source: FromEnvironment, Note: "no effect: " + f.why, Error: wrong[f.name],
			})
		}
	}
	return report
}

// Write writes the report's settings and remarks as an aligned table. Errors are for the caller to tell.
func (r Report) Write(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tSOURCE\tREMARK")
	for _, e := range r.Settings {
		value := cmp.Or(e.Value, "-")
		if e.Unit != "" && e.Value != "" {
			value += " " + e.Unit
		}
		remark := e.Note
		if e.Error != "" {
			remark = "CANNOT BE USED: " + e.Error
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.Setting, value, e.Source, cmp.Or(remark, "-"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, note := range slices.Compact(slices.Clone(r.Notes)) {
		if _, err := fmt.Fprintf(out, "note: %s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// Networking gives those of the settings that are about links and routes.
func Networking(given map[string]string) map[string]string {
	var s Settings
	chosen := map[string]string{}
	for _, setting := range s.settings(nil) {
		if setting.group == groupLinks || setting.group == groupRouting {
			chosen[setting.name] = given[setting.name]
		}
	}
	return chosen
}
