# frozen_string_literal: true

desc "Run every example as its first lines tell"
task examples: :compile do
  FileList["examples/*.rb"].sort.each do |example|
    sh "ruby", "-Ilib", example
  end
end
